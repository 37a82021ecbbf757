"""How a window join may be divided into parts: by time, with the halos of its windows, and by keys.

The rows of one stream, the anchor, are each in one part; whoever can share a tuple with them comes
along.  How far that is follows from the closed windows, so a stream that is bound to the anchor
only through others has the halo of the whole path:

    a ──5s── b ──3s── c        anchor a:  b comes from 5 s around, c from 8 s

Every stream may be the anchor; the planner takes the one that makes the least copies.
"""

from __future__ import annotations

from matwin.cutting import Cut, Cutting, Halos
from matwin.scheduler.layout import ANCHOR, Halo

from .constraints import FARTHEST, LARGEST
from .question import WindowQuestion


def halos_of(question: WindowQuestion) -> Halos:
    """For every stream as the anchor, how far the others' rows may be from its own."""
    names, upper = question.names, question.constraints.upper
    return tuple(
        {
            name: ANCHOR if i == anchor else Halo(-upper[i][anchor], upper[anchor][i])
            for i, name in enumerate(names)
        }
        for anchor in range(len(names))
    )


def is_bounded(question: WindowQuestion) -> bool:
    """Whether every pair of streams has a limit that is worth cutting strips for."""
    limit = LARGEST if question.is_float else FARTHEST
    return all(abs(bound) < limit for row in question.constraints.upper for bound in row)


def cutting_of(question: WindowQuestion) -> Cutting:
    """How a window join may be divided."""
    columns = tuple(str(side.attributes[0]) for side in question.sides)
    cuts = []
    if is_bounded(question):
        cuts.append(Cut(columns, halos_of(question)))
    elif question.is_keyed:
        cuts.append(Cut(None, halos_of(question)))
    return Cutting(question.sides, tuple(cuts), question.is_keyed, may_salt=True, marks_own=False)
