"""`matwin window-join --follow`: results leave while the inputs still grow.

Most of it runs the command as a process of its own, with pipes that the test holds open: a row that
arrives there has left before the input's end.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin import jsonl
from matwin.growing import FileInput, Lines, PipeInput, input_of
from matwin.storage.errors import InputError
from matwin.tools import follow
from matwin.tools.cli import main
from matwin.tools.follow import Divided, Following

CODE = "import sys; from matwin.tools.cli import main; sys.exit(main())"
ASKED = ["--time", "t", "--window", "5", "--by", "k", "--follow"]
GIVE_UP_SECONDS = 120


class Command:
    """A running `matwin window-join`; killed if the test has waited far too long for it."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, "window-join", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin, self.process.stdout, self.process.stderr
        )  # fmt: skip
        self._timer = threading.Timer(GIVE_UP_SECONDS, self.process.kill)
        self._timer.start()

    def say(self, *rows: dict[str, Any] | bytes) -> None:
        """Write lines to its standard input."""
        self.stdin.write(b"".join(map(line, rows)))
        self.stdin.flush()

    def hear(self) -> Any:
        """The next line of its output, waited for."""
        return json.loads(self.stdout.readline())

    def end(self) -> tuple[int, bytes, str]:
        """Its exit code, and what is left of its output and its errors."""
        out, err = self.process.communicate()
        return self.process.returncode, out, err.decode()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


def line(row: dict[str, Any] | bytes) -> bytes:
    return row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n"


def add(path: Path, *rows: dict[str, Any] | bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(map(line, rows)))


@pytest.fixture
def grows(tmp_path: Path) -> Path:
    """A file with one line."""
    path = tmp_path / "b.jsonl"
    add(path, {"t": 1, "k": "x", "v": 0.5})
    return path


# ── results before the end ───────────────────────────────────────────────────────────────────


def test_rows_leave_before_the_inputs_end(grows: Path) -> None:
    with Command("a=-", f"b={grows}", *ASKED, "--format", "jsonl") as command:
        command.say({"t": 2, "k": "x"})
        assert command.hear() == {"k": "x", "a_t": 2, "b_t": 1, "b_v": 0.5}
        add(grows, {"t": 3, "k": "x", "v": 1.5})
        assert command.hear() == {"k": "x", "a_t": 2, "b_t": 3, "b_v": 1.5}
        add(grows, b'{"t": 4, "k"')
        add(grows, b': "x", "v": 2}\n')
        assert command.hear()["b_v"] == 2
        command.say({"t": 8, "k": "x"})
        assert sorted(command.hear()["b_t"] for _ in range(2)) == [3, 4]
        grows.unlink()  # its end
        code, out, err = command.end()
    assert (code, out) == (0, b"")
    assert "a      2 rows in, 2 used; answered after" in err and "out    5 rows" in err


def test_several_streams_on_standard_input() -> None:
    words = ["a=-", "b=-", "c=-", *ASKED, "--stream-field", "from", "--format", "jsonl"]
    with Command(*words) as command:
        command.say(
            {"from": "a", "t": 1, "k": "x"},
            {"from": "b", "t": 2, "k": "x", "n": 1},
            {"from": "c", "t": 3, "k": "x"},
        )
        assert command.hear() == {"k": "x", "a_t": 1, "b_t": 2, "b_n": 1, "c_t": 3}
        command.say({"from": "b", "t": 4, "k": "x", "n": 2})
        assert command.hear()["b_n"] == 2
        assert command.end()[:2] == (0, b"")


def test_a_table_beside_a_stream(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1, 2, 30], "k": ["x", "y", "x"]}), tmp_path / "b.parquet")
    words = ["a=-", f"b={tmp_path}/b.parquet", *ASKED, "--format", "jsonl"]
    with Command(*words) as command:
        command.say({"t": 3, "k": "x"})
        assert command.hear() == {"k": "x", "a_t": 3, "b_t": 1}
        command.say({"t": 28, "k": "x"})
        assert command.hear() == {"k": "x", "a_t": 28, "b_t": 30}
        assert command.end()[0] == 0


def test_named_pipes(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        os.mkfifo(path)
    words = [f"a={paths[0]}", f"b={paths[1]}", *ASKED, "--format", "jsonl"]
    with Command(*words) as command:
        with paths[1].open("wb", 0) as b, paths[0].open("wb", 0) as a:  # b's writer comes first
            b.write(line({"t": 1, "k": "x"}))
            a.write(line({"t": 2, "k": "x"}))
            assert command.hear() == {"k": "x", "a_t": 2, "b_t": 1}
            a.write(b'{"t": 3, "k": "x"}')  # the last line needs no newline
        assert json.loads(command.end()[1])["a_t"] == 3


@pytest.mark.parametrize("kind", ["csv", "ipc"])
def test_other_formats_flush_each_batch(grows: Path, kind: str) -> None:
    with Command("a=-", f"b={grows}", *ASKED, "--format", kind) as command:
        command.say({"t": 2, "k": "x"})
        if kind == "csv":
            assert command.stdout.readline() == b'"k","a_t","b_t","b_v"\n'
            assert command.stdout.readline() == b'"x",2,1,0.5\n'
        else:
            stream = pa.ipc.open_stream(command.stdout)
            assert stream.read_next_batch().to_pylist() == [
                {"k": "x", "a_t": 2, "b_t": 1, "b_v": 0.5}
            ]
        command.say({"t": 3, "k": "x"})
        if kind == "csv":
            assert command.stdout.readline() == b'"x",3,1,0.5\n'
        else:
            assert stream.read_next_batch()["a_t"].to_pylist() == [3]
        grows.unlink()
        assert command.end()[0] == 0


def test_rows_go_to_a_file_and_the_summary_does_not(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1], "k": ["x"]}), tmp_path / "b.parquet")
    out = tmp_path / "out.arrow"
    words = ["a=-", f"b={tmp_path}/b.parquet", *ASKED, "-o", str(out), "--json"]
    with Command(*words) as command:
        command.say({"t": 2, "k": "x"})
        code, printed, _ = command.end()
    summary = json.loads(printed)
    assert (code, summary["rows_out"], summary["streams"]["a"]["rows_in"]) == (0, 1, 1)
    with pa.OSFile(str(out)) as file:
        assert pa.ipc.open_stream(file).read_all()["a_t"].to_pylist() == [2]


# ── the end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_whole_output(grows: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out.jsonl"
    os.mkfifo(out)  # so that the test knows when a row has been written
    with Command("a=-", f"b={grows}", *ASKED, "-o", str(out)) as command:
        command.say({"t": 2, "k": "x"})
        with out.open("rb") as rows:
            assert json.loads(rows.readline())["a_t"] == 2
            command.process.send_signal(number)
            assert rows.read() == b""
        assert command.process.wait() == 128 + number
        assert "Traceback" not in command.stderr.read().decode()


def test_a_signal_while_nothing_has_come(tmp_path: Path) -> None:
    empty = tmp_path / "b.jsonl"
    empty.touch()
    with Command("a=-", f"b={empty}", *ASKED, "--format", "jsonl") as command:
        # The first line of a is read before b's is waited for.
        command.say({"t": 1, "k": "x"})
        wait_until_read(command)
        command.process.send_signal(signal.SIGINT)
        assert command.end() == (130, b"", "")


def wait_until_read(command: Command) -> None:
    """Return when the pipe is empty: whoever empties it has set up its signals before."""
    filler = b" " * 65536 + b"\n"  # a blank line as long as a pipe is: written when all is read
    command.say(filler)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"t": 3, "k"}\n', "a: standard input: line 2 is no JSON"),
        (b"[1]\n", "line 2 is no JSON object"),
        ({"t": 3.5, "k": "x"}, "a: line 2: column 't' is 3.5 and no int64"),
        ({"t": 3, "k": "x", "z": 1}, "line 2 has a column 'z'"),
        ({"t": 1, "k": "x"}, "declared sorted"),
    ],
)
def test_a_bad_line_is_told_and_what_was_written_stays(
    grows: Path, bad: dict[str, Any] | bytes, message: str
) -> None:
    with Command("a=-", f"b={grows}", *ASKED, "--format", "jsonl") as command:
        command.say({"t": 2, "k": "x"})
        assert command.hear()["a_t"] == 2
        command.say(bad)
        code, out, err = command.end()
    assert (code, out) == (2, b"")
    assert message in err and err.count("\n") == 1


def test_a_reader_that_goes_away(grows: Path) -> None:
    with Command("a=-", f"b={grows}", *ASKED, "--format", "jsonl") as command:
        command.say({"t": 2, "k": "x"})
        command.hear()
        command.stdout.close()
        command.say({"t": 3, "k": "x"})
        assert command.process.wait() == 141
        assert command.stderr.read() == b""


# ── what is promised ─────────────────────────────────────────────────────────────────────────


def test_lateness_and_rows_that_come_later_still(grows: Path) -> None:
    words = ["a=-", f"b={grows}", *ASKED, "--lateness", "a=3", "--late", "drop"]
    with Command(*words, "--format", "jsonl") as command:
        command.say({"t": 4, "k": "x"}, {"t": 2, "k": "x"})
        assert {command.hear()["a_t"] for _ in range(2)} == {4, 2}
        command.say({"t": 6, "k": "x"}, {"t": 1, "k": "x"})  # complete up to 3 by now
        assert command.hear()["a_t"] == 6
        grows.unlink()
        code, out, err = command.end()
    assert (code, out) == (0, b"")
    assert "a      4 rows in, 3 used, 1 late" in err


def test_declared_columns_need_no_first_line(tmp_path: Path) -> None:
    empty = tmp_path / "b.jsonl"
    empty.touch()
    schemas = ["--schema", "a=t:timestamp[us, tz=UTC],k:string", "--schema", "b=t:timestamp[ms, tz=UTC],k:string"]  # fmt: skip # noqa: E501
    words = [w.replace("5", "5s") for w in ASKED]
    with Command("a=-", f"b={empty}", *words, *schemas, "--format", "jsonl") as command:
        command.say({"t": "2024-05-01T12:00:00Z", "k": "x", "other": 1})
        add(empty, {"t": 1714564803000, "k": "x"})
        assert command.hear() == {
            "k": "x", "a_t": "2024-05-01T12:00:00.000000Z", "b_t": "2024-05-01T12:00:03.000Z"
        }  # fmt: skip
        empty.unlink()
        assert command.end()[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "out.parquet"], "parquet can't be read before it is complete"),
        (["--format", "table"], "table can't be read before it is complete"),
        (["--verify"], "--verify needs files that are complete"),
        (["--sql"], "--sql needs files that are complete"),
        (["--algorithm", "merge"], "merge"),
        (["--stream-field", "s"], "--stream-field goes with streams on standard input"),
        (["--lateness", "5s"], "--lateness '5s': '5s' is no number"),
        (["--lateness", "z=5"], "'z' is no stream"),
        (["--schema", "b=t"], "write t:timestamp[us]"),
        (["--schema", "b=t:moment"], "'moment' is no type"),
        (["--schema", "z=t:int64"], "name its stream"),
        (["-o", ".", "--format", "csv"], "is a folder"),
    ],
)
def test_bad_words_are_one_clear_line(
    grows: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    other = grows.with_name("c.jsonl")
    add(other, {"t": 1, "k": "x"})
    assert main(["window-join", f"b={grows}", f"c={other}", *ASKED, *words]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["nowhere.jsonl", "folder.jsonl"])
def test_what_can_not_be_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match=name):
        input_of(str(tmp_path / name), "a", lambda: False)


# ── inputs ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pipe() -> Iterator[tuple[PipeInput, io.FileIO]]:
    """An input and what it reads from."""
    reading, writing = os.pipe()
    with io.FileIO(writing, "wb") as file:
        yield PipeInput(reading, "pipe", lambda: False), file


def test_lines_come_whole(pipe: tuple[PipeInput, io.FileIO]) -> None:
    lines, file = pipe
    assert lines.take() == []
    file.write(b'{"a": 1}\n\n{"a"')
    assert [(found.number, found.row) for found in lines.take() or ()] == [(1, {"a": 1})]
    assert lines.take() == []
    file.write(b": 2}")
    file.close()
    assert lines.take() == []
    assert [(found.number, found.row) for found in lines.take() or ()] == [(3, {"a": 2})]
    assert lines.take() is None


@given(st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\r", b"\n")), max_size=20))
def test_lines_are_the_same_however_they_come(chunks: list[bytes]) -> None:
    whole, lines = b"".join(chunks), Lines("here")
    found = [line for chunk in chunks for line in lines.add(chunk)] + lines.finish()
    assert found == whole.split(b"\n")


def test_a_line_without_end_is_an_error(
    pipe: tuple[PipeInput, io.FileIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "LINE_BYTES_MAX", 5000)
    lines, file = pipe
    file.write(b'{"a": 1}\n')
    assert len(lines.take() or ()) == 1
    with pytest.raises(InputError, match="pipe: line 2 is longer than 5000 bytes"):
        for _ in range(6):
            file.write(b"[" * 1000)
            assert lines.take() == []


def test_what_waits_for_other_streams_is_bounded(
    pipe: tuple[PipeInput, io.FileIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WAITING_BYTES_MAX", 10_000)
    lines, file = pipe
    divided = Divided(lines, ["a", "b"], "s")
    with pytest.raises(InputError, match="wait for the others"):
        for _ in range(11):
            file.write(b'{"s": "a", "n": "%s"}\n' % (b"x" * 1000))
            assert divided.of("b")() == []


def test_a_stopped_input_has_ended(pipe: tuple[PipeInput, io.FileIO]) -> None:
    lines, file = pipe
    file.write(b'{"a": 1}\n')
    lines.is_stopped = lambda: True
    assert lines.take() is None


def test_a_file_that_shrinks_is_an_error(grows: Path) -> None:
    lines = input_of(str(grows), "b", lambda: False)
    assert isinstance(lines, FileInput)
    assert len(lines.take() or ()) == 1
    os.truncate(grows, 3)
    with pytest.raises(InputError, match="has become shorter"):
        lines.take()


def test_each_stream_gets_its_own_lines(pipe: tuple[PipeInput, io.FileIO]) -> None:
    lines, file = pipe
    divided = Divided(lines, ["a", "b"], "s")
    file.write(b'{"s": "a", "n": 1}\n{"s": "b", "n": 2}\n{"s": "a", "n": 3}\n')
    assert [found.row["n"] for found in divided.of("b")() or ()] == [2]
    assert [found.row["n"] for found in divided.of("a")() or ()] == [1, 3]
    file.write(b'{"s": "b", "n": 4}\n{"s": "c", "n": 5}\n')
    with pytest.raises(InputError, match="line 5: its 's' is 'c'"):
        divided.of("a")()
    assert [found.row["n"] for found in divided.of("b")() or ()] == [4]
    assert divided.of("b")() is None and divided.of("a")() is None


def test_signals_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Following() as following:
        os.kill(os.getpid(), signal.SIGINT)
        assert following.is_stopped() and following.signals.code == 130
        with pytest.raises(KeyboardInterrupt), following.signals.held():
            os.kill(os.getpid(), signal.SIGINT)  # waits until what is written is whole
            is_whole = True
        assert is_whole
    assert signal.getsignal(signal.SIGINT) is before
