"""One suite for both forms of page file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from matwin.storage import CorruptPage, InputError, LmdbPageFile, MemoryPageFile, PageFile, PageId
from matwin.storage.layout import encode_page, schema_mark

PAGE = 4096
SCHEMA = pa.schema([("t", pa.int64()), ("text", pa.string())])
Open = Callable[[], PageFile]


@pytest.fixture(params=["lmdb", "lmdb-synced", "lmdb-small-map", "memory"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the file, and what was in it when it was closed."""
    if request.param == "memory":
        file = MemoryPageFile(page_size=PAGE)
        return lambda: file
    durability = "epoch" if request.param == "lmdb-synced" else "checkpoint"
    map_first = 64 * 1024 if request.param == "lmdb-small-map" else 2**26
    return lambda: LmdbPageFile(
        tmp_path / "file", page_size=PAGE, durability=durability, map_first=map_first
    )


def page(number: int, text: str = "some text") -> tuple[PageId, pa.Buffer]:
    t = np.array([number], np.int64)
    batch = pa.record_batch([t, [text]], schema=SCHEMA)
    page_id = PageId(3, number)
    return page_id, encode_page(page_id, batch, [t, t], schema_mark(SCHEMA))[0]


def test_pages_come_back_as_they_were_written(reopen: Open) -> None:
    pages = [page(1), page(2, "x" * 5000), page(3, "y" * 50_000)]
    file = reopen()
    file.write(pages)
    for page_id, data in pages:
        assert file.read(page_id).equals(data)
    assert file.page_ids() == [page_id for page_id, _ in pages]
    file.close()


def test_what_is_read_outlives_the_file(reopen: Open) -> None:
    page_id, data = page(1)
    file = reopen()
    file.write([(page_id, data)])
    copy = file.read(page_id)
    file.free([page_id])
    for number in range(2, 40):
        file.write([page(number)])
    file.close()
    assert copy.equals(data)


def test_a_missing_page_is_named(reopen: Open) -> None:
    file = reopen()
    with pytest.raises(CorruptPage, match="page 9 of window 3"):
        file.read(PageId(3, 9))
    file.close()


def test_a_step_is_complete_with_its_record(reopen: Open) -> None:
    file = reopen()
    assert file.completed() is None
    file.write([page(1)])
    assert file.complete(b"first") == 1
    file.write([page(2)])
    file.close()
    file = reopen()
    assert file.completed() == (1, b"first")
    assert file.recover([PageId(3, 1)]) == 1
    assert file.page_ids() == [PageId(3, 1)]
    assert file.complete(b"second") == 2
    file.close()


def test_pages_of_a_complete_step_stay_until_the_next(reopen: Open) -> None:
    file = reopen()
    file.write([page(1), page(2, "x" * 9000)])
    file.complete(b"")
    file.free([PageId(3, 1), PageId(3, 2)])
    assert len(file.page_ids()) == 2
    file.complete(b"")
    assert file.page_ids() == []
    file.close()


def test_pages_that_no_step_named_go_at_once(reopen: Open) -> None:
    file = reopen()
    file.write([page(1, "x" * 9000), page(2)])
    file.free([PageId(3, 1)])
    assert file.page_ids() == [PageId(3, 2)]
    file.close()


def test_a_large_state_and_many_pages(reopen: Open) -> None:
    file = reopen()
    for first in range(0, 300, 50):
        file.write([page(number) for number in range(first, first + 50)])
    state = bytes(range(256)) * 2000
    file.complete(state)
    file.free([PageId(3, number) for number in range(0, 300, 2)])
    file.complete(state[::-1])
    file.close()
    file = reopen()
    assert file.completed() == (2, state[::-1])
    assert [p.page for p in file.page_ids()] == list(range(1, 300, 2))
    for number in range(1, 300, 2):
        assert file.read(PageId(3, number)).equals(page(number)[1])
    file.close()


@pytest.mark.parametrize("size", [0, -4096, 100, 5000, 2**31])
def test_page_sizes_out_of_range(size: int) -> None:
    with pytest.raises(InputError, match="4 KiB"):
        LmdbPageFile(None, page_size=size)
    with pytest.raises(InputError, match="4 KiB"):
        MemoryPageFile(page_size=size)
