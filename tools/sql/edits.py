"""A text with some stretches replaced.

    select a.t from temp a bestmatch join hum b …  ──▶  select m1."a.t" AS "t" from m1 …
           └┬┘      └─────────┬────────────────┘
        edits: places of the old text, and what stands there in the new one

Everything else stays as the user has written it.  An edit within another one's stretch is dropped:
the outer one has taken it into account by rendering its parts itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import Place


@dataclass(slots=True)
class Edits:
    """What is to be replaced in a text."""

    text: str
    made: list[tuple[Place, str]] = field(default_factory=list)

    def replace(self, place: Place, text: str) -> None:
        """Put `text` in the place of a stretch."""
        self.made.append((place, text))

    def rendered(self, place: Place | None = None) -> str:
        """The new text of a stretch."""
        start = 0 if place is None else place.start
        end = len(self.text) - 1 if place is None else place.end
        inside = [(at, new) for at, new in self.made if at.start >= start and at.end <= end]
        # Widest first where two begin alike, so that the inner one is the one dropped.
        inside.sort(key=lambda edit: (edit[0].start, -edit[0].end))
        pieces, done = [], start
        for at, new in inside:
            if at.start >= done:
                pieces += [self.text[done : at.start], new]
                done = at.end + 1
        return "".join([*pieces, self.text[done : end + 1]])
