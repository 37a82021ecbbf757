"""As-of search over rows of both sides in one order, a portion at a time.

    ─────────── one key ───────────▶ time           right rows of one key and time are a group:
    ▲▲   ●●●      ▲     ●     ▲▲▲   ●●              the same match, of which `ties` keeps one or all
    g0   g0,g1    g1    ·     open
                        └─ waits for the next group, where the nearer of both is wanted

A left row's match before it is the last group that has come; the one after it is the next.  What is
kept between two portions is little: the last two groups of the key (two, because one may be at the
row's own time where that is no match), the group that may go on, and left rows that wait.  Groups
that `ties="all"` needs whole, and rows that wait, are kept on pages where they are many, and read
again.

For the rows after a left row alone, times come mirrored, so that after is before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from matwin.storage.columns import Int64s, floats_of_keys
from matwin.storage.ordering import group_starts

from .events import LEFT, LEFT_BIT, Columns, Pile
from .latest import Latest, Near, Values, expanded, nearer

NOBODY = -1
Pairs = tuple[Int64s, Int64s]
"""Left rows and right rows by their numbers; `NOBODY` in place of a right one."""


@dataclass(slots=True)
class Group:
    """Right rows of one key and time."""

    time: int
    first: int
    last: int
    members: Pile | None = None
    """All of them, where all are matches."""


@dataclass(slots=True)
class _Groups:
    """Groups by their number: the two that were there before, and those of the portion."""

    key: Int64s
    """The number of their key in the portion; -1 where there is no group."""
    time: Int64s
    first: Int64s
    last: Int64s
    starts: Int64s
    sizes: Int64s
    """Where their rows are among `rows`; of those that were there before, none."""
    rows: Int64s
    before: list[Group | None] = field(default_factory=list)


class Search:
    """The pass over one order."""

    def __init__(
        self, latest: Latest, near: Near, *, is_float: bool, pairs_max: int,
        pile: Callable[[int], Pile],
    ) -> None:  # fmt: skip
        self._latest = latest
        self._near = near
        self._is_mirrored = latest.direction == "forward"
        self._looks_on = latest.direction == "nearest"
        self._is_float = is_float
        self._pairs_max = pairs_max
        self._pile = pile
        self._wants_all = latest.ties == "all"
        self._key: tuple[int, ...] | None = None
        self._groups: list[Group | None] = [None, None]
        self._open: Group | None = None
        self._open_key: tuple[int, ...] = ()
        self._waiting = pile(2)

    # ── portions ─────────────────────────────────────────────────────────────────────────────

    def found(self, columns: Columns) -> Iterator[Pairs]:
        """The matches of left rows that are known with this portion."""
        columns = self._absorbed(columns)
        if len(columns[0]) == 0:
            return
        if self._open is not None:
            yield from self._completed()
        rest, tail = self._without_tail(columns)
        if len(rest[0]):
            yield from self._searched(rest)
        if len(tail[0]):
            self._open_key = tuple(int(code[0]) for code in tail[:-2])
            self._open = self._group(int(tail[-2][0]), tail[-1])

    def end(self) -> Iterator[Pairs]:
        """The matches of the rows that still wait."""
        if self._open is not None:
            yield from self._completed()
        yield from self._settled(None)
        self._new_key(None)

    def _absorbed(self, columns: Columns) -> Columns:
        """The portion without the right rows that go on with the open group."""
        group = self._open
        if group is None:
            return columns
        same = columns[-1] < LEFT
        for column, value in zip(columns, (*self._open_key, group.time), strict=False):
            same &= column == value
        count = len(same) if same.all() else int(np.argmin(same))
        rows = columns[-1][:count]
        if count:
            group.first = min(group.first, int(rows.min()))
            group.last = max(group.last, int(rows.max()))
            if group.members is not None:
                group.members.add(rows)
        return [column[count:] for column in columns]

    def _without_tail(self, columns: Columns) -> tuple[Columns, Columns]:
        """The portion, and the group at its end, which may go on."""
        is_left = columns[-1] >= LEFT
        if is_left[-1]:
            return columns, [column[:0] for column in columns]
        differs = is_left.copy()
        for column in columns[:-1]:
            differs |= column != column[-1]
        at = len(differs) - int(np.argmax(differs[::-1])) if differs.any() else 0
        return [column[:at] for column in columns], [column[at:] for column in columns]

    def _group(self, time: int, rows: Int64s) -> Group:
        group = Group(time, int(rows.min()), int(rows.max()))
        if self._wants_all:
            group.members = self._pile(1)
            group.members.add(rows)
        return group

    # ── what is kept between portions ────────────────────────────────────────────────────────

    def _completed(self) -> Iterator[Pairs]:
        """The open group is whole: who has waited for it has a match after it."""
        group, self._open = self._open, None
        assert group is not None
        if self._open_key != self._key:
            yield from self._settled(None)
            self._new_key(self._open_key)
        else:
            yield from self._settled(group)
        self._forget(self._groups[0])
        self._groups = [self._groups[1], group]

    def _new_key(self, key: tuple[int, ...] | None) -> None:
        for group in self._groups:
            self._forget(group)
        self._key, self._groups = key, [None, None]

    def _forget(self, group: Group | None) -> None:
        if group is not None and group.members is not None:
            group.members.clear()

    def _settled(self, following: Group | None) -> Iterator[Pairs]:
        """The matches of rows that have waited for the next group, which there is or not."""
        if not self._waiting.rows:
            return
        groups = _of_before([*self._groups, following])
        for rows, times in self._waiting.chunks():
            before = self._place_before(times, np.full(len(rows), 1), groups)
            after = np.full(len(rows), NOBODY if following is None else 2)
            yield from self._chosen(rows, times, before, after, groups)
        self._waiting.clear()

    # ── the rows of a portion ────────────────────────────────────────────────────────────────

    def _searched(self, columns: Columns) -> Iterator[Pairs]:
        """The matches of a portion's left rows; every group in it is whole."""
        codes, times, rows = columns[:-2], columns[-2], columns[-1]
        first_key = tuple(int(code[0]) for code in codes)
        if first_key != self._key:
            yield from self._settled(None)
            self._new_key(first_key)
        is_left = rows >> LEFT_BIT != 0
        begins = np.zeros(len(rows), np.int64)
        if codes:
            begins[group_starts(codes)[1:]] = 1
        key = np.cumsum(begins)
        right = np.flatnonzero(~is_left)
        starts = group_starts([key[right], times[right]])
        groups = self._grouped(key[right], times[right], rows[right], starts)
        if len(starts) and groups.key[2] == 0 and self._waiting.rows:
            following = self._made(groups, 2)
            yield from self._settled(following)
            self._forget(following)
        elif key[-1] != 0 and self._waiting.rows:
            yield from self._settled(None)
        left = np.flatnonzero(is_left)
        opens = np.zeros(len(rows), np.int64)
        opens[right[starts]] = 1
        latest = 1 + np.cumsum(opens)[left]
        yield from self._matched(key[left], times[left], rows[left] - LEFT, latest, groups)
        self._carry(groups, tuple(int(code[-1]) for code in codes), int(key[-1]))

    def _grouped(self, key: Int64s, times: Int64s, rows: Int64s, starts: Int64s) -> _Groups:
        """The groups of a portion behind the two before it."""
        groups = _of_before(self._groups)
        first = last = rows[:0]
        if len(starts):
            first = np.minimum.reduceat(rows, starts)
            last = np.maximum.reduceat(rows, starts)
        sizes = np.diff(np.append(starts, len(rows)))
        return _Groups(
            np.append(groups.key, key[starts]), np.append(groups.time, times[starts]),
            np.append(groups.first, first), np.append(groups.last, last),
            np.append(groups.starts, starts), np.append(groups.sizes, sizes), rows, groups.before,
        )  # fmt: skip

    def _matched(
        self, key: Int64s, times: Int64s, rows: Int64s, latest: Int64s, groups: _Groups
    ) -> Iterator[Pairs]:
        """The matches of left rows, of which `latest` is the last group that began before each."""
        before = self._place_before(times, latest, groups)
        before = np.where((before >= 0) & (groups.key[before] == key), before, NOBODY)
        after = np.full(len(rows), NOBODY)
        if self._looks_on:
            following = np.minimum(latest + 1, len(groups.key) - 1)
            is_there = (following == latest + 1) & (groups.key[following] == key)
            after = np.where(is_there, following, NOBODY)
            last_key = int(key[-1]) if len(key) else 0
            waits = (latest + 1 == len(groups.key)) & (key == last_key)
            if waits.any():
                self._to_wait = rows[waits], times[waits]
                some = ~waits
                rows, times, before, after = rows[some], times[some], before[some], after[some]
        yield from self._chosen(rows, times, before, after, groups)

    def _place_before(self, times: Int64s, latest: Int64s, groups: _Groups) -> Int64s:
        """The group before each row, one further back where a row's own time is no match."""
        if self._latest.is_strict:
            latest = latest - (groups.time[latest] == times) * (groups.key[latest] >= 0)
        return np.where(groups.key[latest] >= 0, latest, NOBODY)

    _to_wait: Pairs | None = None

    def _carry(self, groups: _Groups, key: tuple[int, ...], number: int) -> None:
        """Keep the last two groups of the last key, and the rows that wait."""
        of_key = np.flatnonzero(groups.key == number)[-2:].tolist()
        kept = [self._made(groups, at) for at in of_key]
        for at, group in enumerate(groups.before):
            if at not in of_key:
                self._forget(group)
        self._key = key
        self._groups = [*[None] * (2 - len(kept)), *kept]
        if self._to_wait is not None:
            self._waiting.add(*self._to_wait)
            self._to_wait = None

    def _made(self, groups: _Groups, at: int) -> Group:
        if at < len(groups.before):
            group = groups.before[at]
            assert group is not None
            return group
        start = int(groups.starts[at])
        rows = groups.rows[start : start + int(groups.sizes[at])]
        return self._group(int(groups.time[at]), rows)

    # ── which match ──────────────────────────────────────────────────────────────────────────

    def _chosen(
        self, rows: Int64s, times: Int64s, before: Int64s, after: Int64s, groups: _Groups
    ) -> Iterator[Pairs]:
        """Of the groups before and after each row the nearer one, within the tolerance; none is
        `NOBODY`."""
        ours, theirs = self._values(times), self._values(groups.time)
        before = self._within(before, ours, theirs, is_after=self._is_mirrored)
        if self._looks_on:
            after = self._within(after, ours, theirs, is_after=True)
            both = np.flatnonzero((before >= 0) & (after >= 0))
            side = nearer(ours[both], theirs[before[both]], theirs[after[both]])
            is_one = side != 0 if self._wants_all else np.ones(len(side), np.bool_)
            after[both[(side <= 0) & is_one]] = NOBODY
            before[both[side > 0]] = NOBODY
        if not self._wants_all:
            chosen = np.where(before >= 0, before, after)
            ends = groups.first if self._latest.ties == "first" else groups.last
            yield rows, np.where(chosen >= 0, ends[chosen], NOBODY)
            return
        yield from self._all_of(rows, before, groups)
        yield from self._all_of(rows, after, groups)
        alone = rows[(before < 0) & (after < 0)]
        yield alone, np.full(len(alone), NOBODY)

    def _values(self, times: Int64s) -> Values:
        times = ~times if self._is_mirrored else times
        return floats_of_keys(times) if self._is_float else times

    def _within(
        self, found: Int64s, ours: Values, theirs: Values, *, is_after: bool
    ) -> npt.NDArray[np.int64]:
        """Nobody in place of groups beyond the tolerance."""
        return self._near.within(found.copy(), ours, theirs, is_after=is_after)

    def _all_of(self, rows: Int64s, chosen: Int64s, groups: _Groups) -> Iterator[Pairs]:
        """Each row with every row of its group, so many pairs at a time."""
        for at, group in enumerate(groups.before):
            if group is not None and (chosen == at).any():
                yield from self._each_with(rows[chosen == at], group)
        own = np.flatnonzero(chosen >= len(groups.before))
        sizes = groups.sizes[chosen[own]]
        ends, start = np.cumsum(sizes), 0
        while start < len(own):
            done = int(ends[start - 1]) if start else 0
            limit = max(int(np.searchsorted(ends, done + self._pairs_max, "right")), start + 1)
            some = own[start:limit]
            begins, counts = groups.starts[chosen[some]], sizes[start:limit]
            for skip in range(0, int(counts[0]) if limit == start + 1 else 1, self._pairs_max):
                fits = np.minimum(counts - skip, self._pairs_max) if limit == start + 1 else counts
                mates = groups.rows[expanded(begins + skip, fits)]
                yield np.repeat(rows[some], fits), mates
            start = limit

    def _each_with(self, rows: Int64s, group: Group) -> Iterator[Pairs]:
        """Rows with every row of a group that was there before the portion."""
        assert group.members is not None
        for (members,) in group.members.chunks():
            for start in range(0, len(members), self._pairs_max):
                mates = members[start : start + self._pairs_max]
                each = max(1, self._pairs_max // len(mates))
                for begin in range(0, len(rows), each):
                    some = rows[begin : begin + each]
                    yield np.repeat(some, len(mates)), np.tile(mates, len(some))


def _of_before(before: list[Group | None]) -> _Groups:
    """The groups that were there before, as numbers."""
    none = Group(0, NOBODY, NOBODY)
    made = [group or none for group in before]
    return _Groups(
        np.array([-1 if group is None else 0 for group in before]),
        np.array([group.time for group in made]), np.array([group.first for group in made]),
        np.array([group.last for group in made]), np.zeros(len(made), np.int64),
        np.zeros(len(made), np.int64), np.empty(0, np.int64), before,
    )  # fmt: skip
