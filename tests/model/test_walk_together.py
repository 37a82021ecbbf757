"""Pairs that come together, as joins of more than two streams take them; and spans that overlap."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

from matwin.scheduler import MODES, Pair, Reach, Walk, plan
from matwin.scheduler.spans import Spans, overlapping
from matwin.storage import MemoryPageFile, PageRef, Store

PAGE = 4096
PAGES_MAX = 9
SCHEMA = pa.schema([("t", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def windows() -> Iterator[tuple[Store, list[list[PageRef]]]]:
    """Three windows of one row a page: the left one, and two for the right side."""
    with Store(memory=400 * PAGE, file=MemoryPageFile(page_size=PAGE)) as store:
        refs = []
        for name in ("left", "right", "more"):
            window = store.window(name, SCHEMA, on={"t": 1}, materialize="standard")
            rows = {"t": range(PAGES_MAX), "name": ["x" * 3000] * PAGES_MAX}
            window.append(pa.record_batch(rows, schema=SCHEMA))
            store.commit()
            refs.append(window.pages())
            assert len(refs[-1]) == PAGES_MAX
        yield store, refs


@st.composite
def reaches(draw: st.DrawFn) -> tuple[Reach, int]:
    """Any pairs at all, and how many of the right pages are the first window's."""
    lefts = draw(st.integers(1, PAGES_MAX))
    first, more = draw(st.integers(0, PAGES_MAX)), draw(st.integers(0, PAGES_MAX))
    rights = first + more
    density = draw(st.sampled_from([1, 3, 8]))
    meets = np.random.default_rng(draw(st.integers(0, 10**6))).integers(0, 9, (lefts, rights))
    rows = [[(j, j + 1) for j in range(rights) if meets[i, j] < density] for i in range(lefts)]
    return Reach.of(rows, right_pages=rights), first


@contextmanager
def walk_of(
    windows: tuple[Store, list[list[PageRef]]], reach: Reach, first: int, frames: int, mode: str,
    ahead: int,
) -> Iterator[tuple[Walk, list[PageRef], list[PageRef]]]:  # fmt: skip
    """A walk; whatever becomes of it, nothing is pinned afterwards."""
    store, (left, right, more) = windows
    held = store.pool.held_bytes
    lefts = left[: reach.left_pages]
    rights = right[:first] + more[: reach.right_pages - first]
    schedule = plan(reach, frames=frames, mode=mode)
    yield Walk(store.pool, schedule, lefts, rights, read_ahead=ahead), lefts, rights
    assert store.pool.held_bytes == held
    store.pool.check()


def pairs_of(reach: Reach) -> list[tuple[int, int]]:
    return [(i, j) for i, first, limit in reach.triples() for j in range(first, limit)]


@given(
    drawn=reaches(), frames=st.integers(2, 12), mode=st.sampled_from(MODES),
    columns=st.integers(1, 5), ahead=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=campaign(150, 5000))
def test_every_pair_once_and_whole_columns_whole(
    windows: Any, drawn: tuple[Reach, int], frames: int, mode: str, columns: int, ahead: int
) -> None:
    reach, first = drawn
    met = defaultdict(set)
    with walk_of(windows, reach, first, frames, mode, ahead) as (walk, lefts, rights):
        left_at = {ref.page_id: at for at, ref in enumerate(lefts)}
        right_at = {ref.page_id: at for at, ref in enumerate(rights)}
        for i, j in pairs_of(reach):
            met[i].add(j)
        seen: Counter[tuple[int, int]] = Counter()
        for lots, is_whole in walk.together(columns):
            assert lots and all(lots)
            own = defaultdict(set)
            assert all(len({pair.left.page_id for pair in pairs}) == 1 for pairs in lots)
            for pair in chain.from_iterable(lots):
                assert pair.left.is_held and pair.right.is_held
                assert pair.left.page_id == pair.left_ref.page_id
                assert pair.right.page_id == pair.right_ref.page_id
                at = left_at[pair.left.page_id], right_at[pair.right.page_id]
                own[at[0]].add(at[1])
                seen[at] += 1
            pages = {page for pairs in lots for pair in pairs for page in pair.page_ids}
            assert len(pages) <= frames
            if is_whole:
                assert len(own) <= columns
                assert all(own[i] == met[i] for i in own)
            assert len(own) == len(lots)
            if mode == "gallop" and all(len(met[i]) < frames for i in own):
                assert is_whole, "gallop has all that a left page meets in frames at once"
    assert seen == Counter(pairs_of(reach))


@given(drawn=reaches(), mode=st.sampled_from(MODES), stop=st.integers(1, 4), raises=st.booleans())
@settings(max_examples=campaign(30, 1000))
def test_nothing_stays_pinned_when_the_consumer_stops(
    windows: Any, drawn: tuple[Reach, int], mode: str, stop: int, raises: bool
) -> None:
    reach, first = drawn
    with walk_of(windows, reach, first, 4, mode, 3) as (walk, _, _):
        found = walk.together(2)
        taken: list[Pair] = []
        for lots, _ in found:
            taken += chain.from_iterable(lots)
            stop -= 1
            if stop == 0 and raises:
                with pytest.raises(ZeroDivisionError):
                    found.throw(ZeroDivisionError)  # type: ignore[attr-defined]
                break
            if stop == 0:
                found.close()  # type: ignore[attr-defined]
                break
    assert not any(pair.left.is_held or pair.right.is_held for pair in taken)


# ── spans ────────────────────────────────────────────────────────────────────────────────────

ENDS = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1])


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    pair = st.tuples(ENDS, ENDS).map(sorted)
    both = st.tuples(pair, pair).map(lambda both: (*both[0], *both[1]))
    return draw(st.lists(both, max_size=8))


@given(spans(), spans())
@settings(max_examples=campaign(200, 10000))
def test_overlapping_is_a_plain_loop(
    left: list[tuple[int, int, int, int]], right: list[tuple[int, int, int, int]]
) -> None:
    expected = [
        (i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if a[0] <= b[1] and b[0] <= a[1] and a[2] <= b[3] and b[2] <= a[3]
    ]
    arrays = (Spans(*np.array(rows, np.int64).reshape(-1, 4).T) for rows in (left, right))
    owners, edges = overlapping(*arrays)
    assert [
        (int(i), j)
        for i, (first, limit) in zip(owners, edges.tolist(), strict=True)
        for j in range(first, limit)
    ] == expected
    assert pairs_of(Reach.from_intervals(owners, edges, len(left), len(right))) == expected
