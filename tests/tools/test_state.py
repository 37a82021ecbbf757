"""`matwin state`: what a query has committed, shown, verified and exported without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.operators.epochs.durable import Notes, StateFolder
from matwin.tools.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two streams of five minutes, of which the last three are kept."""
    monkeypatch.chdir(tmp_path)
    jobs.write_files(tmp_path)
    jobs.write_job(tmp_path, more='keep = 3\nstate = "state"\nsink = "out"')
    assert main(["query", "job.toml", "--once", "-q"]) == 0
    return tmp_path


def left_behind(folder: Path) -> None:
    """A state as a crash after the commit leaves it: a result that may not be delivered."""
    bare = folder / "pending"
    query = matwin.continuous_query(
        "SELECT pid FROM a", {"a": "a.parquet"}, cut=matwin.cut.every("60s", on="ts"), state=bare
    )
    epochs = iter(query)
    next(epochs)
    query.close()


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["state", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ── show ─────────────────────────────────────────────────────────────────────────────────────


def test_show_tells_what_is_committed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "show", "state")
    assert (told["epoch"], told["rows_in"], told["pending"]) == (5, 120, None)
    assert told["bounds"].startswith("2026-01-01 00:04:00")
    assert told["asked"]["query"] == "epsilon_join" and told["asked"]["by"] == "'pid'"
    for stream in told["streams"].values():
        assert [(c["epoch"], c["rows"]) for c in stream["chunks"]] == [(3, 12), (4, 12), (5, 12)]
        assert stream["bytes"] == sum(c["bytes"] for c in stream["chunks"]) > 0
        assert stream["position"] == {"first_row": 60, "rows_read": 60, "mark": None}
        assert stream["columns"] == {"ts": "timestamp[us]", "pid": "int64"}
    assert main(["state", "show", "state"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("state is at epoch 5, 2026-01-01 00:04:00")
    assert "chunks of a, by epoch: 3: 12 rows, 4: 12 rows, 5: 12 rows" in text
    assert "output: all delivered" in text


def test_show_tells_of_a_result_that_may_not_be_delivered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_behind(folder)
    told = shown(capsys, "show", "pending")
    assert told["pending"]["epoch"] == 1 and told["pending"]["rows"] == 12
    assert told["pending"]["is_there"]
    assert shown(capsys, "verify", "pending")["result_rows"] == 12
    assert main(["state", "show", "pending"]) == 0
    assert "output: epoch 1, 12 rows" in capsys.readouterr().out


def test_looking_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind(folder)
    before = shown(capsys, "show", "pending")
    for words in (["show"], ["verify"], ["export", "-o", "x.parquet", "--overwrite"]):
        assert main(["state", words[0], "pending", *words[1:]]) == 0
    capsys.readouterr()
    assert shown(capsys, "show", "pending") == before
    [first] = list(matwin.continuous_query(
        "SELECT pid FROM a", {"a": "a.parquet"}, cut=matwin.cut.every("60s", on="ts"),
        state="pending",
    ))[:1]  # fmt: skip
    assert first.is_replayed and first.id == 1


# ── verify ───────────────────────────────────────────────────────────────────────────────────


def test_verify_reads_all_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "verify", "state")
    assert told["is_whole"] and told["rows"] == 72 and told["pages"] == 6
    assert main(["state", "verify", "state"]) == 0
    assert "state is whole at epoch 5: 6 pages, 72 rows" in capsys.readouterr().out
    assert main(["state", "verify", "state", "-q"]) == 0
    assert capsys.readouterr().out == ""


def test_every_byte_of_a_page_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (folder / "state" / "pages" / "data.mdb").read_bytes()
    places = [at for at in range(len(data)) if data.startswith(b"MATWINPG", at)]
    assert len(places) >= 6
    found = 0
    for at in places:
        damaged = bytearray(data)
        damaged[at + 400] ^= 1  # inside the rows
        shutil.rmtree(folder / "copy", ignore_errors=True)
        shutil.copytree(folder / "state", folder / "copy")
        (folder / "copy" / "pages" / "data.mdb").write_bytes(damaged)
        code = main(["state", "verify", "copy", "--json"])
        told = json.loads(capsys.readouterr().out)
        assert code == (0 if told["is_whole"] else 2)
        if not told["is_whole"]:
            assert len(told["problems"]) == 1 and "page" in told["problems"][0]
            found += 1
    assert found == 6  # what is left over of older chunks is nobody's


def test_results_are_verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind(folder)
    [path] = (folder / "pending" / "results").glob("*.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + b"x" + whole[-8:])
    assert main(["state", "verify", "pending"]) == 2
    assert "epoch-00000001.arrow is damaged" in capsys.readouterr().err
    path.unlink()
    assert main(["state", "verify", "pending"]) == 2
    assert "can't be read" in capsys.readouterr().err
    assert main(["state", "show", "pending"]) == 0
    assert "ITS FILE IS MISSING" in capsys.readouterr().out


def _other_keep(notes: Notes) -> None:
    notes.asked["keep of a"] = "2"


def _other_position(notes: Notes) -> None:
    notes.streams["a"]["begin"] = 99


def _no_position(notes: Notes) -> None:
    del notes.streams["b"]


def _torn_position(notes: Notes) -> None:
    notes.streams["a"]["done"] = "@@@"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_keep, "a: it has a chunk of epoch 3, and 2 are kept up to epoch 5"),
        (_other_position, "a: reading goes on from row 99 of 60"),
        (_no_position, "b: the commit does not say where it reads on"),
        (_torn_position, "a: which rows are in chunks can't be read"),
    ],
)
def test_notes_that_don_t_go_with_the_chunks(
    folder: Path, change: Callable[[Notes], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateFolder("state", memory=64 * 2**20, page_size=2**18, trace=None)
    assert state.notes is not None
    change(state.notes)
    state.commit(state.notes)
    state.close()
    assert main(["state", "verify", "state"]) == 2
    assert told in capsys.readouterr().err


# ── export ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_export_of_a_stream(folder: Path, suffix: str) -> None:
    out = f"chunks.{suffix}"
    assert main(["state", "export", "state", "--stream", "a", "-o", out, "-q"]) == 0
    source = pq.read_table("a.parquet")
    found = pa.ipc.open_file(out).read_all() if suffix == "arrow" else pq.read_table(out)
    assert found.drop_columns("matwin_epoch").to_pydict() == source.slice(24).to_pydict()
    assert found["matwin_epoch"].to_pylist() == [3] * 12 + [4] * 12 + [5] * 12


def test_export_of_all_streams(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "export", "state", "-o", "all", "--format", "csv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {n: {"file": f"all/{n}.csv", "rows": 36} for n in ("a", "b")}
    assert (folder / "all" / "b.csv").read_text().splitlines()[1].startswith("3,2026-01-01 00:02:")
    assert main(["state", "export", "state", "--stream", "a", "--format", "jsonl", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 36 and json.loads(lines[0])["matwin_epoch"] == 3


def test_exports_replace_nothing_unasked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["state", "export", "state", "--stream", "a", "-o", "b.parquet", "-q"]
    before = (folder / "b.parquet").read_bytes()
    assert main(words) == 2
    assert "b.parquet" in capsys.readouterr().err
    assert (folder / "b.parquet").read_bytes() == before
    assert main([*words, "--overwrite"]) == 0


def test_names_of_streams_are_no_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["../up", "a/b"]
    sources = {name: pa.table({"t": [1, 2, 11]}) for name in names}
    cut = matwin.cut.every(10, on="t")
    matwin.continuous_query('SELECT * FROM "a/b"', sources, cut=cut, state="state").run()
    assert main(["state", "export", "state", "-o", "all", "-q"]) == 0
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [
        "..%2Fup.parquet",
        "a%2Fb.parquet",
    ]


# ── what is no state ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_folders_that_are_no_state(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    for name, told in (("nowhere", "there is no such folder"), ("empty", "no query keeps its")):
        assert main(["state", command, name]) == 2
        said = capsys.readouterr().err
        assert told in said and said.count("\n") == 1
    assert not (folder / "nowhere").exists() and list((folder / "empty").iterdir()) == []
    assert main(["state", "export", "state", "--stream", "aa"]) == 2
    assert "no stream 'aa' (did you mean 'a'?)" in capsys.readouterr().err
    assert main(["state", "export", "state"]) == 2
    assert "choose one with --stream" in capsys.readouterr().err


def test_a_state_before_its_first_epoch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    StateFolder("fresh", memory=2**24, page_size=2**14, trace=None).close()
    assert main(["state", "show", "fresh"]) == 2
    assert "no epoch has been committed there yet" in capsys.readouterr().err


def test_a_running_query_has_its_state_for_itself(folder: Path) -> None:
    (folder / "live.toml").write_text(jobs.LIVE, encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--json", "--state", "live") as child:
        jobs.say(child, {"t": 1, "k": "x"}, {"t": 11, "k": "x"})
        assert child.stdout is not None and child.stdout.readline()
        with jobs.running(folder, "state", "show", "live") as looker:
            _, told = looker.communicate(timeout=60)
    assert looker.returncode == 2
    assert f"live/pages is in use by process {child.pid}; wait for it" in told
