"""A sink that lacks epochs of the state: noticed whatever the sink, whatever it lacks."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.tools.cli import main

ROWS = pa.table({"id": range(1000)})


def query(folder: Path, sink: str, **options: Any) -> Any:
    return matwin.continuous_query(
        lambda windows: windows.newest("a").to_arrow(), {"a": ROWS}, cut=matwin.cut.count(100),
        state=folder / "state", sink=str(folder / sink), **options,
    )  # fmt: skip


def stopped(folder: Path, sink: str, epoch: int) -> None:
    running = query(folder, sink)
    for each in running:
        if each.id == epoch:
            running.stop()


def parquet_ids(path: Path) -> list[int]:
    files = sorted(path.glob("*.parquet"))
    return [i for file in files for i in pq.read_table(file)["id"].to_pylist()]


def sqlite_ids(path: Path) -> list[int]:
    with sqlite3.connect(path) as database:
        return [i for (i,) in database.execute("SELECT id FROM results ORDER BY id")]


def duckdb_ids(path: Path) -> list[int]:
    with duckdb.connect(str(path)) as database:
        return [i for (i,) in database.execute("SELECT id FROM results ORDER BY id").fetchall()]


def remove(path: Path) -> None:
    for each in path.parent.glob(path.name + "*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def empty(path: Path) -> None:
    """What whoever looks into it calls emptying."""
    if path.is_dir():
        for file in path.glob("*.parquet"):
            file.unlink()
        return
    module: Any = sqlite3 if path.suffix == ".sqlite" else duckdb
    database = module.connect(str(path))
    database.execute("DELETE FROM results")
    database.execute("DELETE FROM matwin_epochs")
    database.commit()
    database.close()


SINKS: dict[str, Callable[[Path], list[int]]] = {
    "out": parquet_ids, "out.sqlite": sqlite_ids, "out.duckdb": duckdb_ids,
}  # fmt: skip


@pytest.mark.parametrize("lost", [remove, empty])
@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_that_is_behind(sink: str, lost: Callable[[Path], None], tmp_path: Path) -> None:
    stopped(tmp_path, sink, 4)
    lost(tmp_path / sink)
    for _ in range(2):  # and refusing changes nothing
        with pytest.raises(
            matwin.InputError,
            match=r"has no epoch, and the state in .* is at epoch 4: rows of epochs 1 to 4 would "
            r"be missing; put them back, .* sink_from='here'",
        ):
            query(tmp_path, sink)
    assert query(tmp_path, sink, sink_from="here").run().epoch == 10
    assert SINKS[sink](tmp_path / sink) == list(range(400, 1000))
    assert query(tmp_path, sink).run().epoch == 10  # it has the last epoch: nothing is missing


@pytest.mark.parametrize("sink", SINKS)
def test_an_older_copy_of_a_sink(sink: str, tmp_path: Path) -> None:
    stopped(tmp_path, sink, 2)
    copy, now = tmp_path / "copy", tmp_path / sink
    shutil.copytree(now, copy) if now.is_dir() else shutil.copy(now, copy)
    stopped(tmp_path, sink, 5)
    remove(now)
    copy.rename(now)
    with pytest.raises(matwin.InputError, match=r"ends with epoch 2, .* epochs 3 to 5 would be"):
        query(tmp_path, sink)


@pytest.mark.parametrize("sink", SINKS)
def test_an_epoch_that_is_about_to_be_delivered_is_not_missing(sink: str, tmp_path: Path) -> None:
    running = query(tmp_path, sink)
    epochs = iter(running)
    for _ in range(3):
        next(epochs)
    running.close()  # as a process that ends: epoch 3 is not acknowledged
    assert query(tmp_path, sink).run().epoch == 10
    assert SINKS[sink](tmp_path / sink) == list(range(1000))


def test_functions_and_whoever_iterates_keep_no_count(tmp_path: Path) -> None:
    taken: list[int] = []

    def ask(sink: Any) -> Any:
        return matwin.continuous_query(
            lambda windows: windows.newest("a").to_arrow(), {"a": ROWS}, cut=matwin.cut.count(100),
            state=tmp_path / "state", sink=sink,
        )  # fmt: skip

    for sink in (None, lambda epoch, rows: taken.append(epoch)):
        running = ask(sink)
        for epoch in running:
            if epoch.id in (3, 6):
                running.stop()
    assert taken == [4, 5, 6]


def test_sink_from_is_here_or_nothing(tmp_path: Path) -> None:
    for wrong in ("there", 4, True, ""):
        with pytest.raises(matwin.InputError, match=r"sink_from=.*write 'here'"):
            query(tmp_path, "out", sink_from=wrong)


@pytest.mark.parametrize("way", ["words", "job"])
def test_in_a_job_and_on_the_command_line(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    job = tmp_path / "job.toml"
    text = (
        'sink = "out"\nstate = "state"\nquery = "SELECT id FROM a"\n'
        'sources = {a = "a.parquet"}\ncut = {count = 100}\n'
    )
    job.write_text(text)
    assert main(["query", str(job), "--once", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["epoch"] == 10
    shutil.rmtree(tmp_path / "out")
    assert main(["query", str(job), "-q"]) == 2
    assert "sink_from='here'" in capsys.readouterr().err
    if way == "job":
        job.write_text('sink_from = "here"\n' + text)
        assert main(["query", str(job), "-q"]) == 0
        job.write_text("sink_from = 3\n" + text)
        assert main(["query", str(job), "-q"]) == 2
        assert 'sink_from: 3; write "here"' in capsys.readouterr().err
    else:
        assert main(["query", str(job), "-q", "--sink-from", "here"]) == 0
        assert main(["query", str(job), "-q", "--sink-from", "there"]) == 2
        assert "write --sink-from here" in capsys.readouterr().err
