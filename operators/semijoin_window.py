"""Windows of tuples at a node, by duration or by number, and what they hold.

    in order     s1(7) s1(3) s1(7) s1(9)      the oldest is dropped first
    of a value   7: s1 s1   3: s1   9: s1     each in order of arrival

Invariant: both views hold the same tuples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from matwin.storage.errors import InputError

PARTIAL, ASKED, FULL, GONE = "partial", "asked for", "full", "gone"
NOTHING: deque[Any] = deque()


@dataclass(frozen=True, slots=True)
class Last:
    """Tuple-based windows: the last `rows_1` tuples of one stream and `rows_2` of the other."""

    rows_1: int
    rows_2: int

    def __post_init__(self) -> None:
        for rows in (self.rows_1, self.rows_2):
            if not isinstance(rows, int) or rows < 0:
                raise InputError(f"Last({rows!r}): give a number of tuples from 0 on")


@dataclass(frozen=True, slots=True)
class Spans:
    """Time-based windows: ``-span_2 <= t2 - t1 <= span_1``, both ends included."""

    span_1: float
    span_2: float

    def __post_init__(self) -> None:
        if not (self.span_1 >= 0 and self.span_2 >= 0):
            raise InputError(f"{self}: a window lasts 0 or longer")


class Keyed(Protocol):
    """What a window holds."""

    time: Any
    key: Hashable


@dataclass(slots=True)
class Row:
    """A full tuple; `number` counts those of its stream."""

    number: int
    time: Any
    key: Hashable
    payload: Any = None
    full_bytes: int = 0
    partial_bytes: int = 0


@dataclass(slots=True)
class Partial:
    """A tuple's time and join attribute; in the mirror, with its state and who waits for it."""

    number: int
    time: Any
    key: Hashable
    size_bytes: int
    state: str = PARTIAL
    payload: Any = None
    waiting: list[Row] = field(default_factory=list)


Held = TypeVar("Held", bound=Keyed)


class Window(Generic[Held]):
    """Tuples in order of arrival, and those of each value."""

    def __init__(self, rows: int | None, span: Any) -> None:
        self._rows, self._span = rows, span
        self._in_order: deque[Held] = deque()
        self._of_value: dict[Hashable, deque[Held]] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    def of(self, key: Hashable) -> deque[Held]:
        """The tuples of a value, the oldest first."""
        return self._of_value.get(key, NOTHING)

    def values(self) -> Iterable[deque[Held]]:
        """The tuples of each value."""
        return self._of_value.values()

    def insert(self, tuple_: Held) -> None:
        """Keep a tuple that has come."""
        self._in_order.append(tuple_)
        same = self._of_value.get(tuple_.key)
        if same is None:
            self._of_value[tuple_.key] = deque((tuple_,))
        else:
            same.append(tuple_)

    def expire(self, now: Any) -> None:
        """Drop tuples that nothing from `now` on can match, or those that are too many."""
        if self._rows is None:
            while self._in_order and now - self._in_order[0].time > self._span:
                self._drop()
        else:
            while len(self._in_order) > self._rows:
                self._drop()

    def _drop(self) -> None:
        key = self._in_order.popleft().key
        same = self._of_value[key]
        same.popleft()
        if not same:
            del self._of_value[key]

    def check(self) -> None:
        """Raise `AssertionError` unless both views hold the same tuples."""
        by_value: dict[Hashable, list[Held]] = {}
        for tuple_ in self._in_order:
            by_value.setdefault(tuple_.key, []).append(tuple_)
        assert by_value == {key: list(same) for key, same in self._of_value.items()}
