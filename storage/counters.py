"""What a pool has done so far, in numbers.

The trace tells the same event by event: both are made by the same call, so their counts are equal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

# event -> its counter, and the counter of its bytes
_COUNTED = {
    "pin": ("pins", None),
    "hit": ("hits", None),
    "read": ("reads", "bytes_read"),
    "make": ("makes", None),
    "write": ("writes", "bytes_written"),
    "evict": ("evictions", None),
    "drop": ("drops", None),
    "expire": ("expiries", None),
}


@dataclass(slots=True)
class Counters:
    """What the pool has done so far."""

    pins: int = 0
    hits: int = 0
    reads: int = 0
    makes: int = 0
    writes: int = 0
    evictions: int = 0
    drops: int = 0
    expiries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_peak: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)

    def count(self, event: str, size: int) -> None:
        """Count an event; most that a trace tells have no counter."""
        name, size_name = _COUNTED.get(event, (None, None))
        if name:
            setattr(self, name, getattr(self, name) + 1)
        if size_name:
            setattr(self, size_name, getattr(self, size_name) + size)
