"""The two nodes of a distributed stream join, as the semijoin paper has them, tuple by tuple.

    SimpleJoin (SPJ)      s1 ──▶ node 1 ── s1 ─────────────▶ node 2 ◀── s2
                                                             W1' W2 ──▶ results

    SemiJoin (SMJ)        s1 ──▶ node 1 ── ps1 ────────────▶ node 2 ◀── s2
                                 W1     ◀── ask one, all ──  V1' W2 ──▶ results
                                        ── s1, … ──────────▶

Nodes know each other through the link alone, and a node does something only when a tuple or a
message comes to it, so that messages may be under way for any time, as long as they stay in order.
What is found is decided by what has come to node 2: windows of a duration judge by the tuples'
times and find the same in any interleaving, `Last` counts tuples in the order they came in.

In the mirror V1', a tuple is partial, asked for, or full.  Two points the paper leaves open:

- *A mirror can hold full and partial tuples of one value.*  s2 comes; s1 comes, finds it and is
  full; s2 expires; another s1 of the value comes, finds nothing and stays partial.  The paper looks
  at the first match and, if that is full, goes through "all matching full tuples": looked at from
  the oldest on, the second s1 would be lost to the next s2.  What helps is an invariant: of one
  value, tuples are full first, then asked for, then partial, in order of arrival, because whatever
  makes one of them full or asked for does the same to all older ones.  So we look at the *newest*.
- *A request can come too late*, when node 1 has dropped the tuple.  With nothing under way it
  can't: what W1 drops has expired for S1, and S2 is not behind.  With delays node 1 keeps tuples
  longer by `slack`, in time or in tuples; what is gone all the same is counted in `missed`, pair by
  pair, and is not in the results.

A request names a value and the number of the tuple from which on it is wanted.  As the paper has
it, that is the oldest in the mirror, and full tuples are sent again; without `resend` it is the
oldest partial one, which costs nothing and saves those.

A block of tuples is handled as a whole: one message of partial tuples, one request, one reply.
With blocks of one this is the paper's algorithm.  It is Python for each tuple, dicts and deques, on
purpose: the paper's terms (probe the first, probe all, update) are steps of single tuples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

from .semijoin_link import Kind, Link, Message
from .semijoin_window import ASKED, FULL, GONE, PARTIAL, Last, Partial, Row, Spans, Window

Pair = tuple[Any, Any]
Other = TypeVar("Other", Row, Partial)


# ── both algorithms ──────────────────────────────────────────────────────────────────────────


class _QueryNode:
    """Node 2: its own window W2, a copy of the other's, and the results."""

    def __init__(self, windows: Last | Spans) -> None:
        self.pairs: list[Pair] = []
        self.missed = 0
        self._is_timed = isinstance(windows, Spans)
        if isinstance(windows, Spans):
            self._span_1, self._span_2 = windows.span_1, windows.span_2
            self._w2: Window[Row] = Window(None, windows.span_2)
        else:
            self._w2 = Window(windows.rows_2, None)

    def _mates(self, tuple_: Row | Partial) -> list[Row]:
        """The tuples of W2 that a tuple of stream 1 meets when it comes."""
        if not self._is_timed:
            return list(self._w2.of(tuple_.key))
        self._w2.expire(tuple_.time)
        # Where s1 has been under way for long, W2 also has tuples that came too late for it.
        return [s2 for s2 in self._w2.of(tuple_.key) if s2.time - tuple_.time <= self._span_1]

    def _near(self, same: deque[Other], s2: Row) -> Sequence[Other]:
        """Of the tuples of stream 1 with its value, those that s2 meets when it comes: the older
        ones, up to where stream 1 is too far ahead."""
        if self._is_timed and same and same[-1].time - s2.time > self._span_2:
            return [s1 for s1 in same if s1.time - s2.time <= self._span_2]
        return same


def _window_1(windows: Last | Spans, slack: Any = 0) -> Window[Any]:
    if isinstance(windows, Spans):
        return Window(None, windows.span_1 + slack)
    return Window(windows.rows_1 + slack, None)


# ── SPJ ──────────────────────────────────────────────────────────────────────────────────────


class SimpleNode1:
    """Ships every tuple."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def insert(self, rows: Sequence[Row]) -> None:
        """Tuples of stream 1 have come."""
        size_bytes = sum([row.full_bytes for row in rows])
        self._link.send("forward", Message("full", list(rows), size_bytes))

    def receive(self, message: Message) -> None:
        """Nothing is ever asked of it."""
        raise AssertionError(f"a simple join sends nothing back, and there came: {message.kind}")


class SimpleNode2(_QueryNode):
    """Joins in the exported window W1' and its own."""

    def __init__(self, windows: Last | Spans) -> None:
        super().__init__(windows)
        self._exported: Window[Row] = _window_1(windows)

    def receive(self, message: Message) -> None:
        """Tuples of stream 1 have come over the link."""
        for s1 in message.items:
            self.pairs += [(s1.payload, s2.payload) for s2 in self._mates(s1)]
            self._exported.insert(s1)
            if not self._is_timed:
                self._exported.expire(None)

    def insert(self, rows: Sequence[Row]) -> None:
        """Tuples of stream 2 have come."""
        for s2 in rows:
            self._exported.expire(s2.time)
            self.pairs += [
                (s1.payload, s2.payload) for s1 in self._near(self._exported.of(s2.key), s2)
            ]
            self._w2.insert(s2)
            if not self._is_timed:
                self._w2.expire(None)

    def advance(self, now: Any) -> None:
        """No tuple before `now` will come any more, from either stream."""
        self._exported.expire(now)
        self._w2.expire(now)

    def check(self) -> None:
        """Raise `AssertionError` on a broken window."""
        self._exported.check()
        self._w2.check()


# ── SMJ ──────────────────────────────────────────────────────────────────────────────────────


class SemiNode1:
    """Ships partial tuples, keeps the full ones in W1, and sends those that are asked for."""

    def __init__(self, windows: Last | Spans, link: Link, slack: Any = 0) -> None:
        self._link = link
        self._w1: Window[Row] = _window_1(windows, slack)
        self._latest: Any = None

    def insert(self, rows: Sequence[Row]) -> None:
        """Tuples of stream 1 have come."""
        # By what came before this block: node 2 may still ask for what these make expire.
        if self._latest is not None:
            self._w1.expire(self._latest)
        for row in rows:
            self._w1.insert(row)
        self._latest = rows[-1].time
        partial = [Partial(r.number, r.time, r.key, r.partial_bytes) for r in rows]
        size_bytes = sum([row.partial_bytes for row in rows])
        self._link.send("forward", Message("partial", partial, size_bytes))

    def receive(self, message: Message) -> None:
        """Full tuples are asked for: each item a value, and a number."""
        found: list[Row] = []
        for key, number in message.items:
            same = self._w1.of(key)
            if message.kind == "ask all":
                found += [row for row in same if row.number >= number]
            else:
                found += [row for row in reversed(same) if row.number == number]
        size_bytes = sum([row.full_bytes for row in found])
        self._link.send("forward", Message("reply", found, size_bytes))

    def check(self) -> None:
        """Raise `AssertionError` on a broken window."""
        self._w1.check()


class SemiNode2(_QueryNode):
    """Joins partial tuples in the mirror V1' and its own window, and asks for the full ones."""

    def __init__(self, windows: Last | Spans, link: Link, *, resend: bool = True) -> None:
        super().__init__(windows)
        self._link, self._resend = link, resend
        self._mirror: Window[Partial] = _window_1(windows)
        self._asked: deque[list[Partial]] = deque()
        self._latest: Any = None
        self.mixed = 0
        """Requests of an s2 that met full and partial tuples: those that the oldest would hide."""

    def receive(self, message: Message) -> None:
        """Partial tuples or a reply have come over the link."""
        if message.kind == "reply":
            self._fill(self._asked.popleft(), message.items)
        else:
            self._probe_own(message.items)

    def _probe_own(self, partial: list[Partial]) -> None:
        """New tuples of stream 1: which of them have a match?"""
        wanted = []
        for ps1 in partial:
            # All matches are noted at once, not only that there is one: when the full tuple comes,
            # W2 may be another.
            ps1.waiting = self._mates(ps1)
            if ps1.waiting:
                ps1.state = ASKED
                wanted.append(ps1)
            self._mirror.insert(ps1)
            if self._latest is not None or not self._is_timed:
                self._mirror.expire(self._latest)
        if wanted:
            self._ask("ask one", [(ps1.key, ps1.number) for ps1 in wanted], wanted, wanted)

    def insert(self, rows: Sequence[Row]) -> None:
        """Tuples of stream 2 have come."""
        items: list[tuple[Hashable, int]] = []
        heads: list[Partial] = []
        wanted: list[Partial] = []
        for s2 in rows:
            self._latest = s2.time
            self._mirror.expire(s2.time)
            same = self._near(self._mirror.of(s2.key), s2)
            if same and same[-1].state == PARTIAL:  # the newest; see above
                lacking = [ps1 for ps1 in same if ps1.state == PARTIAL]
                items.append((s2.key, same[0].number if self._resend else lacking[0].number))
                heads.append(same[-1])
                self.mixed += same[0].state == FULL
                wanted += lacking
                for ps1 in lacking:
                    ps1.state = ASKED
            self._meet(same, s2)
            self._w2.insert(s2)
            if not self._is_timed:
                self._w2.expire(None)
        if items:
            self._ask("ask all", items, heads, wanted)

    def _meet(self, same: Iterable[Partial], s2: Row) -> None:
        """Output what is full; what is asked for has s2 wait for it."""
        for s1 in same:
            if s1.state == FULL:
                self.pairs.append((s1.payload, s2.payload))
            elif s1.state == GONE:
                self.missed += 1
            else:
                s1.waiting.append(s2)

    def _ask(
        self, kind: Kind, items: list[tuple[Hashable, int]], like: list[Partial],
        wanted: list[Partial],
    ) -> None:  # fmt: skip
        """One request; each item is as long as the partial tuple that it is like."""
        self._asked.append(wanted)
        size_bytes = sum([ps1.size_bytes for ps1 in like])
        self._link.send("back", Message(kind, items, size_bytes))

    def _fill(self, wanted: list[Partial], rows: list[Row]) -> None:
        """A reply: partial tuples become full, and meet those who waited."""
        found = {row.number: row for row in rows}
        for s1 in wanted:
            row = found.get(s1.number)
            if row is None:
                s1.state = GONE
                self.missed += len(s1.waiting)
            else:
                s1.state, s1.payload = FULL, row.payload
                self.pairs += [(row.payload, s2.payload) for s2 in s1.waiting]
            s1.waiting = []

    def advance(self, now: Any) -> None:
        """No tuple before `now` will come any more, from either stream."""
        self._mirror.expire(now)
        self._w2.expire(now)

    def check(self) -> None:
        """Raise `AssertionError` unless of each value full tuples come before those asked for, and
        these before partial ones."""
        self._mirror.check()
        self._w2.check()
        rank = {GONE: 0, FULL: 0, ASKED: 1, PARTIAL: 2}
        for same in self._mirror.values():
            ranks = [rank[s1.state] for s1 in same]
            assert ranks == sorted(ranks), ranks
            assert all(s1.state == ASKED or not s1.waiting for s1 in same)


# ── two nodes and their link ─────────────────────────────────────────────────────────────────


class SimpleJoin:
    """SPJ: each tuple of stream 1 is shipped in full."""

    def __init__(self, windows: Last | Spans, link: Link) -> None:
        self.link = link
        self.node_1, self.node_2 = SimpleNode1(link), SimpleNode2(windows)
        link.connect(node_1=self.node_1.receive, node_2=self.node_2.receive)


class SemiJoin:
    """SMJ: partial tuples are shipped, and full ones when a match is there."""

    def __init__(
        self, windows: Last | Spans, link: Link, *, resend: bool = True, slack: Any = 0
    ) -> None:
        self.link = link
        self.node_1 = SemiNode1(windows, link, slack)
        self.node_2 = SemiNode2(windows, link, resend=resend)
        link.connect(node_1=self.node_1.receive, node_2=self.node_2.receive)
