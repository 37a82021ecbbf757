"""Which algorithm and which bounds, and why.  Pure.

    finite inputs     merge: sorted once, nothing waits
    live, keys        backward-hash: a row costs as much as it has matches
    live, no keys     backward-nested-loop: the interval is all that can be searched

Forward evaluation is never chosen: it makes rows wait for the slowest stream, and what it saves,
tests of windows, costs little here.

`auto` bounds are ``graph``: the closed windows are never wider than the local or global ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from matwin.storage.errors import InputError
from matwin.storage.units import format_size

from .constraints import BOUNDS

Algorithm: TypeAlias = Literal[
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
]
Bounds: TypeAlias = Literal["auto", "global", "local", "graph"]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)[1:]


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm and its bounds, with the reasons."""

    algorithm: str
    bounds: str
    reason: str
    is_asked: bool = False
    """Whether the algorithm was asked for by name."""

    def on_pages(self, why: str, how: str) -> str:
        """What is done instead of the algorithm once the windows are on pages."""
        instead = "" if self.algorithm == "merge" else f", not {self.algorithm}: that is for memory"
        return f"merge on pages{instead}; {why}; {how}"

    @property
    def needs_memory(self) -> bool:
        """Whether no other algorithm will do, and this one has no windows on pages."""
        return self.is_asked and self.algorithm != "merge"

    def check_pages(self) -> None:
        """Refuse options that ask for pages beside an algorithm that has none."""
        if self.needs_memory:
            raise InputError(
                f"algorithm={self.algorithm!r} has its windows in memory, and trace=, materialize= "
                "or schedule= asks for pages; leave these out, or take algorithm='auto'"
            )

    def refusal(self, budget_bytes: int, why: str) -> InputError:
        """Why the algorithm that was asked for can't go on.  Another one in its place would be
        quiet about it: whoever names one measures it, or has a reason."""
        return InputError(
            f"algorithm={self.algorithm!r} has its windows in memory, and there is no room in "
            f"{format_size(budget_bytes)}: {why}; give more memory, or take algorithm='auto', "
            "which goes on with pages"
        )

    @property
    def is_hash(self) -> bool:
        """Whether rows are found by their key's chain."""
        return self.algorithm.endswith("hash")

    @property
    def is_forward(self) -> bool:
        """Whether rows wait until they are final."""
        return self.algorithm.startswith("forward")


def choose(algorithm: object, bounds: object, *, is_keyed: bool, is_live: bool) -> Choice:
    """The choice for a question, or an `InputError` for one that can't be."""
    if algorithm not in ("auto", *ALGORITHMS):
        raise InputError(f"algorithm={algorithm!r}; choose one of auto, {', '.join(ALGORITHMS)}")
    if bounds not in ("auto", *BOUNDS):
        raise InputError(f"bounds={bounds!r}; choose one of auto, {', '.join(BOUNDS)}")
    chosen, reason = str(algorithm), "as asked for"
    if algorithm == "auto":
        chosen, reason = _auto(is_keyed=is_keyed, is_live=is_live)
    if chosen.endswith("hash") and not is_keyed:
        raise InputError(
            f"algorithm={chosen!r} looks rows up by key, and there is none; give by=, or take "
            f"{chosen.replace('hash', 'nested-loop')!r}"
        )
    if chosen == "merge" and is_live:
        raise InputError(
            "algorithm='merge' is for finite sources, and a stream here is live; take "
            "'backward-hash', or 'backward-nested-loop' without by="
        )
    why = "the closed windows are the narrowest" if bounds == "auto" else "as asked for"
    own = "graph" if bounds == "auto" else str(bounds)
    is_asked = algorithm != "auto"
    return Choice(chosen, own, f"{chosen}: {reason}; bounds {own}: {why}", is_asked)


def _auto(*, is_keyed: bool, is_live: bool) -> tuple[str, str]:
    if not is_live:
        return "merge", "all inputs are finite, so they are sorted by key and time and merged"
    if is_keyed:
        return (
            "backward-hash",
            "streams are live: results leave with the last row, found along the key's chain",
        )
    return (
        "backward-nested-loop",
        "streams are live and have no key: results leave with the last row, found by time",
    )
