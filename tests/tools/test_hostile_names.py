"""Names that mean harm, or nothing at all: columns, paths, windows of a trace.

Whatever a name holds, a command does what it is asked or says in one line that it can't; and what
it does is right: the SQL it prints gives the same rows.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import duckdb
import proofs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign

import matwin
from matwin.storage.trace import TraceFile
from matwin.tools.cli import main

NASTY = (
    "a\nb", "a\r\n--b", "\u2028", "\x0b\x0c\x1c\x85", '"', '""', "'", "';drop table left_rows;--",
    '"\n"', "#", "##", "\x1b[2J", "\u202eabc", "a=b:c\\d", "-o", "--on", "*", "[a-z]?", "..", "",
    " ", "ü" * 300, "\0", "left_row", "l0", "t_left", "matwin x", "{0}", "%s", "</script>", "𝟙",
)  # fmt: skip
names = st.sampled_from(NASTY) | st.text(max_size=12)


def escaped(name: str) -> str:
    return "".join("\\" + c if c in "\\=:" else c for c in name)


def ran(words: list[str]) -> tuple[int, str]:
    """The exit code and what was printed; a refusal is one line and no traceback.

    Standard output takes UTF-8 and nothing else, as a terminal's does.
    """
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with redirect_stdout(out), redirect_stderr(said):
        code = main(words)
    err = said.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert code in (0, 2), err
    if code == 2:
        assert err.startswith("matwin: error: ") and err.count("\n") == 1 and "\x1b" not in err
    return code, out.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.mark.proof("hostile names")
@settings(max_examples=campaign(40, 1500))
@given(names, names, st.booleans())
@example("a\nb", "a\u2028b", True)
@example("left_row", "right_row", False)  # what our own SQL calls its columns
@example("c0", "#", False)
@example("left_row", "c0", True)
def test_columns(
    tmp_path_factory: pytest.TempPathFactory,
    on: str, other: str, is_window: bool,
) -> None:  # fmt: skip
    proofs.tried()
    path = tmp_path_factory.getbasetemp() / "hostile.parquet"
    columns = {on: [1, 2, 5], other: ["x", "y", None]} if on != other else {on: [1, 2, 5]}
    given_table = pa.table(columns)
    pq.write_table(given_table, path)
    words = ["join", str(path), str(path), f"--on={escaped(on)}=1", "--pairs", "all"]
    if is_window:
        words = ["window-join", f"a={path}", f"b={path}", f"--time={escaped(on)}", "--window", "1"]
    code, text = ran([*words, "--sql"])
    out = path.with_name("hostile.arrow")
    did, _ = ran([*words, "--quiet", "-o", str(out), "--overwrite"])
    if code == 0 and did == 0:
        with duckdb.connect() as database, pa.OSFile(str(out)) as file:
            found = database.sql(text).to_arrow_table()
            assert as_bag(found) == as_bag(pa.ipc.open_file(file).read_all())


@pytest.mark.proof("hostile names")
@settings(max_examples=campaign(40, 1500))
@given(
    (names | st.binary(max_size=8).map(lambda b: b.decode("utf-8", "surrogateescape"))).filter(
        lambda name: "/" not in name and name not in ("", ".", "..") and "\0" not in name
    )
)
def test_paths(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    proofs.tried()
    try:
        shown = os.fsencode(name)
    except UnicodeEncodeError:
        return  # no name that a file could have
    folder = tmp_path_factory.getbasetemp() / "hostile"
    folder.mkdir(exist_ok=True)
    place = folder / os.fsdecode(shown[:200])
    inputs = [f"{place}.csv", f"{place}.jsonl"]
    for path, text in zip(inputs, ("t,x\n1,a\n", '{"t": 1}\n'), strict=True):
        Path(path).write_text(text)
    for words in (
        ["join", inputs[0], inputs[0], "--on", "t=1", "--quiet", "-o", f"{place}.out.csv",
         "--trace", f"{place}.trace", "--overwrite"],
        ["join", inputs[0], inputs[0], "--on", "t=1", "--sql"],
        ["join", inputs[0], f"{place}-nowhere.csv", "--on", "t=1"],
        ["window-join", f"a={inputs[0]}", f"b={inputs[1]}", "--time", "t", "--window", "1",
         "--quiet", "-o", f"{place}.out.jsonl", "--overwrite"],
        ["trace", "html", f"{place}.trace", "--overwrite"],
        ["trace", "summary", f"{place}.trace"],
        ["trace", "summary", inputs[0]],
    ):  # fmt: skip
        ran(words)
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.proof("hostile names")
@settings(max_examples=campaign(40, 1500))
@given(names, names)
def test_traces(
    tmp_path_factory: pytest.TempPathFactory,
    window: str, why: str,
) -> None:  # fmt: skip
    proofs.tried()
    path = tmp_path_factory.getbasetemp() / "hostile.trace"
    trace = TraceFile(path, {why or "empty": window})
    for event in ("make", "write", "evict", "read", "plan", "visit", "walked", why):
        trace.record(event, window, 0, 0, 4096, 0, why, (why, 1))
    trace.close()
    for command in ("summary", "pages", "matrix", "replay", "html", "perfetto"):
        more = ["--overwrite"] if command in ("html", "perfetto") else []
        code, out = ran(["trace", command, str(path), *more])
        assert "\x1b[2J" not in out and "\u202e" not in out
        if code == 0 and command == "html":
            page = path.with_suffix(".html").read_text()
            assert page.count("</script>") == page.count("<script"), "no name closes a script"
        if code == 0 and command == "perfetto":
            told = json.loads(path.with_suffix(".perfetto.json").read_bytes())["traceEvents"]
            names = {e["args"]["name"] for e in told if e["name"] == "thread_name"}
            assert (window or "store") in names


def test_python_takes_names_that_the_command_line_can_not_say(tmp_path: Path) -> None:
    table = pa.table({"": [1, 2], "\0": [1, 2]})
    found = matwin.epsilon_join(table, table, on={"": 0}).read_all()
    assert found.num_rows == 2
