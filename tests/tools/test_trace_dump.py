"""One page out of the page file: its bytes are the page's, its rows the window's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import traces

from matwin.storage import LmdbPageFile, MemoryPageFile, PageId, Store
from matwin.storage.layout import decode_page, schema_mark
from matwin.storage.materialize.window import page_schema
from matwin.tools import cli
from matwin.tools.trace.dump import grid_of, parts_of
from matwin.tools.trace.peek import peek


def dumped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["trace", "dump", *words]) == 0
    return capsys.readouterr().out


def stored(folder: Path, page_id: PageId, page_size: int = 4096) -> bytes:
    file = LmdbPageFile(folder, page_size=page_size)
    try:
        return bytes(file.read(page_id))
    finally:
        file.close()


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_bytes_are_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    before = state_of(tmp_path / "pages")
    text = dumped(capsys, str(trace), "--window", "weather", "--page", "3", "--full")
    assert state_of(tmp_path / "pages") == before
    lines = re.findall(r"^ *(\d+)  ((?:[0-9a-f]{2} ?)+)(?:  |$)", text.split("\n\n")[1], re.M)
    found = bytearray()
    for offset, data in lines:
        assert int(offset) == len(found)
        found += bytes.fromhex(data)
    assert bytes(found) == stored(tmp_path / "pages", PageId(1, 3))


def test_parts_cover_every_page_without_gaps(tmp_path: Path) -> None:
    """Nulls, texts, lists, keys, a page of several records, and many rows in a cell."""
    schema = pa.schema(
        [
            ("blob", pa.binary()), ("t", pa.timestamp("ns")), ("tags", pa.list_(pa.string())),
            ("key", pa.dictionary(pa.int32(), pa.string())), ("flag", pa.bool_()),
        ]
    )  # fmt: skip
    count = 300
    columns = [
        pa.array([b"x" * 9000, *(None if i % 7 == 0 else b"\x1b" * i for i in range(count - 1))]),
        pa.array(np.arange(count) * 1000 + 1, pa.timestamp("ns")),
        pa.array([["a", None] if i % 2 else None for i in range(count)], schema.field("tags").type),
        pa.array([f"k{i % 2}" for i in range(count)]).dictionary_encode(),
        pa.array([i % 3 == 0 for i in range(count)]),
    ]  # fmt: skip
    folder = tmp_path / "pages"
    with Store(folder, memory="1MiB", page_size=4096, trace=tmp_path / "t") as store:
        window = store.window("w", schema, on={"t": "1ms"}, by="key", materialize="standard")
        window.append(pa.record_batch(columns, schema=schema))
        store.commit()
        ids = [ref.page_id for ref in window.pages()]
        expected = pa.Table.from_batches(window.scan())
    found = []
    with peek(folder) as store:
        number, state = store.windows["w"]
        grid = grid_of(state.grid)
        assert repr(grid) == state.grid
        schema = page_schema(state.schema, grid)
        for page_id in ids:
            data = store.page(page_id)
            assert data is not None and page_id.window == number
            page = decode_page(data, schema, schema_mark(schema))
            parts = list(parts_of(data, page, schema, grid))
            assert b"".join(part.data for part in parts) == bytes(data)
            assert [part.offset for part in parts] == np.cumsum(
                [0, *(len(part.data) for part in parts[:-1])]
            ).tolist()
            found.append(page.batch)
        assert any(store.page(page_id).size > 4096 for page_id in ids)
        assert store.page(PageId(number, 99_999)) is None
    names = ("t", "flag")
    plain = pa.Table.from_batches(found)
    assert plain.select(names).equals(expected.select(names))
    for page_id in ids:
        assert cli.main(
            ["trace", "dump", str(tmp_path / "t"), "--window", "w", "--page", str(page_id.page)]
        ) == 0  # fmt: skip


def test_a_file_whose_tree_has_branches(tmp_path: Path) -> None:
    with Store(tmp_path / "p", memory="8MiB", page_size=4096) as store:
        window = store.window("w", traces.ROWS, on={"t": 100}, materialize="slab")
        window.append(traces.rows(40_000))
        store.commit()
        ids = [ref.page_id for ref in window.pages()]
    assert len(ids) > 300
    with peek(tmp_path / "p") as found:
        pages = {page_id: found.page(page_id) for page_id in ids}
        for missing in (PageId(0, 2**40), PageId(7, 0)):
            assert found.page(missing) is None
    file = LmdbPageFile(tmp_path / "p", page_size=4096)
    assert all(file.read(page_id).equals(page) for page_id, page in pages.items())
    file.close()


def test_rows_are_the_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    text = dumped(capsys, str(trace), "--window", "readings", "--page", "2", "--rows", "500")
    with Store(tmp_path / "pages", page_size=4096, memory="1MiB") as store:
        window = store.window("readings", traces.ROWS, on={"t": 100, "x": 0.5})
        ref = next(ref for ref in window.pages() if ref.page_id.page == 2)
        with store.pool.pin(ref.page_id) as page:
            expected = page.batch.to_pylist()
    shown = [line.split(None, 3) for line in text.split("\n\n")[-1].splitlines()[2:]]
    assert [(int(t), float(x), name) for _, t, x, name in shown] == [
        (row["t"], row["x"], row["name"]) for row in expected
    ]
    assert f"{len(expected)} rows in" in text.splitlines()[0]


def test_expired_rows_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    texts = [
        dumped(capsys, str(trace), "--window", "readings", "--page", str(page), "--rows", "0")
        for page in range(3)
    ]
    assert any("below 100 have expired" in text for text in texts)


def test_control_characters_in_values_and_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("t", pa.int64()), ("a\x1b[2J", pa.string())])
    with Store(tmp_path / "p", memory="1MiB", page_size=4096, trace=tmp_path / "t") as store:
        window = store.window("w\n\x07", schema, on={"t": 10})
        window.append(
            pa.record_batch([[1, 2], ["x\x1b]0;evil\x07", "\u202eback\n"]], schema=schema)
        )
        store.commit()
    text = dumped(capsys, str(tmp_path / "t"), "--window", "w\\n\\x07", "--page", "0")
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "x\\x1b]0;evil\\x07" in text and "\\u202eback\\n" in text


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["trace", "dump", *words]) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and streams.err.count("\n") == 1
    return streams.err


def test_a_page_that_is_gone_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    assert "expired" not in refused(capsys, str(trace), "--window", "weather", "--page", "99")
    with Store(tmp_path / "s", memory="1MiB", page_size=4096, trace=tmp_path / "t") as store:
        window = store.window("w", traces.ROWS, on={"t": 100}, materialize="slab")
        window.append(traces.rows(2000))
        store.commit()
        window.expire(below=1000)
        store.commit()
    error = refused(capsys, str(tmp_path / "t"), "--window", "w", "--page", "0")
    assert "gone" in error and "t < 1000" in error
    assert "no window" in refused(capsys, str(trace), "--window", "no", "--page", "0")
    assert "from 0" in refused(capsys, str(trace), "--window", "weather", "--page", "-1")
    assert "--rows" in refused(
        capsys, str(trace), "--window", "weather", "--page", "1", "--rows", "-1"
    )


def test_stores_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--window", "w", "--page", "0")
    for file, hint in (("scratch", "scratch"), ("memory", "memory"), ("", "--store")):
        path = traces.written(
            tmp_path / f"t{file}", [("make", "w", 0, 0, 9, 0, "")], {"file": file}
        )
        assert hint in refused(capsys, str(path), *words)
    path = traces.written(tmp_path / "gone", [], {"file": "no/such\x1b/folder"})
    assert "no/such\\x1b/folder" in refused(capsys, str(path), *words)
    path = traces.written(tmp_path / "nul", [], {"file": "a\0b"})
    assert "--store" in refused(capsys, str(path), *words)
    assert "data.mdb" in refused(capsys, str(path), *words, "--store", str(tmp_path))
    (tmp_path / "data.mdb").write_bytes(b"no page file" * 1000)
    assert "no page file" in refused(capsys, str(path), *words, "--store", str(tmp_path))


def test_the_store_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    words = ("--window", "weather", "--page", "3")
    text = dumped(capsys, str(trace), *words)
    (tmp_path / "pages").rename(tmp_path / "moved")
    refused(capsys, str(trace), *words)
    moved = dumped(capsys, str(trace), *words, "--store", str(tmp_path / "moved"))
    assert moved.replace("moved", "pages") == text
    (tmp_path / "moved" / "owner").unlink()
    assert dumped(capsys, str(trace), *words, "--store", str(tmp_path / "moved" / "data.mdb"))


def test_a_store_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    words = (str(trace), "--window", "weather", "--page", "3")
    with Store(tmp_path / "pages", page_size=4096, memory="1MiB"):
        assert "in use by process" in refused(capsys, *words)
    assert dumped(capsys, *words)


def test_a_window_that_is_not_in_the_last_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "s", memory="1MiB", page_size=4096, trace=tmp_path / "t") as store:
        window = store.window("w", traces.ROWS, on={"t": 100})
        window.append(traces.rows(10))
        window.settle()
    error = refused(capsys, str(tmp_path / "t"), "--window", "w", "--page", "0")
    assert "last complete step (0)" in error


@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 8])
def test_damage_is_one_line(at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    file = tmp_path / "pages" / "data.mdb"
    data = bytearray(file.read_bytes())
    where = len(data) * at // 9
    data[where : where + 4096] = bytes(255 - byte for byte in data[where : where + 4096])
    file.write_bytes(data)
    for page in range(7):
        status = cli.main(["trace", "dump", str(trace), "--window", "weather", "--page", str(page)])
        streams = capsys.readouterr()
        assert status in (0, 2)
        assert status == 0 or streams.err.count("\n") == 1


def test_pages_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t"
    with Store(memory="1MiB", file=MemoryPageFile(page_size=4096), trace=trace) as store:
        store.window("w", traces.ROWS, on={"t": 100}).append(traces.rows(10))
        store.commit()
    assert "memory" in refused(capsys, str(trace), "--window", "w", "--page", "0")
