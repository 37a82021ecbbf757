"""The line between two nodes: what goes over it is counted, and waits until it is delivered.

    node 1 ── forward ──▶ node 2        full, partial, reply
           ◀── back ─────               ask one, ask all

A link never sleeps and never looks into a message.  It knows how long its messages would take by
the semijoin paper's formula, latency + bytes / bytes per second for each; messages that are under
way at the same time are not taken to overlap, as the paper's are not.

Invariants: messages of one direction arrive in the order they were sent in; each is counted once,
when it is sent.  Whoever wants the paper's world, in which nothing is ever under way, calls
`settle` after every arrival; whoever wants delays calls `deliver` when it suits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from matwin.storage.errors import InputError

Kind = Literal["full", "partial", "ask one", "ask all", "reply"]
Direction = Literal["forward", "back"]


@dataclass(frozen=True, slots=True)
class Message:
    """What one node tells the other; a block of tuples is one message."""

    kind: Kind
    items: list[Any]
    size_bytes: int


Handler = Callable[[Message], None]


@dataclass(slots=True)
class Counts:
    """What went over the link."""

    messages: int = 0
    tuples: int = 0
    size_bytes: int = 0

    def add(self, other: Counts) -> None:
        """Count what another has counted."""
        self.messages += other.messages
        self.tuples += other.tuples
        self.size_bytes += other.size_bytes


@dataclass(slots=True)
class Link:
    """A link with a latency in seconds and a rate in bytes a second, and what went over it."""

    latency: float = 0.005
    bytes_per_second: float = 1000.0
    kinds: dict[tuple[Direction, Kind], Counts] = field(default_factory=dict)
    _under_way: dict[Direction, deque[Message]] = field(
        default_factory=lambda: {"forward": deque(), "back": deque()}
    )
    _receivers: dict[Direction, Handler] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.latency >= 0:
            raise InputError(f"latency={self.latency!r}: give seconds, from 0 on")
        if not self.bytes_per_second > 0:
            raise InputError(f"bytes_per_second={self.bytes_per_second!r}: give more than 0")

    def connect(self, *, node_1: Handler, node_2: Handler) -> None:
        """Say who gets what comes over it."""
        if self._receivers:
            raise InputError("the link connects two nodes already; give each join its own Link()")
        self._receivers = {"forward": node_2, "back": node_1}

    def send(self, direction: Direction, message: Message) -> None:
        """Send a message; it is under way until it is delivered."""
        counts = self.kinds.get((direction, message.kind))
        if counts is None:
            counts = self.kinds[direction, message.kind] = Counts()
        counts.messages += 1
        counts.tuples += len(message.items)
        counts.size_bytes += message.size_bytes
        self._under_way[direction].append(message)

    def deliver(self, direction: Direction) -> bool:
        """Hand over the message that has been under way longest; whether there was one."""
        waiting = self._under_way[direction]
        if not waiting:
            return False
        self._receivers[direction](waiting.popleft())
        return True

    def settle(self) -> None:
        """Deliver all messages, and those that are sent in answer."""
        forward, back = self._under_way["forward"], self._under_way["back"]
        while forward or back:
            self.deliver("forward")
            self.deliver("back")

    # ── what went over it ────────────────────────────────────────────────────────────────────

    @property
    def under_way(self) -> int:
        """Messages that are not delivered yet."""
        return sum(map(len, self._under_way.values()))

    def count(self, direction: Direction | None = None, kind: Kind | None = None) -> Counts:
        """What was sent: in all, in one direction, of one kind."""
        total = Counts()
        for (its_direction, its_kind), counts in self.kinds.items():
            if direction in (None, its_direction) and kind in (None, its_kind):
                total.add(counts)
        return total

    @property
    def seconds(self) -> float:
        """What all messages take by the paper's formula.

        >>> link = Link(latency=0.5, bytes_per_second=100)
        >>> link.send("forward", Message("partial", ["ps1"], 10))
        >>> link.seconds
        0.6
        """
        total = self.count()
        return total.messages * self.latency + total.size_bytes / self.bytes_per_second
