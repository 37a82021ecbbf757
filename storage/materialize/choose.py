"""Which form suits a window: a cost model in pages, and the reason as text.  Pure.

With L live pages, S pages of new rows in a step and C cells touched in a step.  Sparse cells share
pages, which are cut in halves when they overflow and therefore two thirds full: a step touches T,
the lesser of C and 3/2 L.

| form     | pages written a step | pages read a step |
|----------|----------------------|-------------------|
| slab     | S                    | 0                 |
| standard | L + S                | L + S             |
| grid     | T + S                | T                 |

Slab is the cheapest by far, but only drops what has expired when rows come in order or nearly so.
"""

from __future__ import annotations

from dataclasses import dataclass

ARRIVALS = ("sorted", "late", "unsorted")


@dataclass(frozen=True, slots=True)
class Choice:
    """A form and why."""

    form: str
    reason: str


def choose(
    arrival: str = "sorted",
    *,
    live_pages: int | None = None,
    step_pages: int | None = None,
    step_cells: int | None = None,
) -> Choice:
    """The form for a window, from how its rows arrive and, where known, how many.

    >>> choose("sorted").form
    'slab'
    >>> choose("unsorted", live_pages=1000, step_pages=4, step_cells=20).reason
    'rows come unsorted; a step costs 44 pages in grid, 2008 in standard'
    """
    if arrival in ("sorted", "late"):
        how = "in order" if arrival == "sorted" else "nearly in order"
        return Choice("slab", f"rows come {how}: each is written once and dropped with its slab")
    if live_pages is None or step_pages is None or step_cells is None:
        return Choice("standard", "rows come unsorted and nothing is known of the steps")
    standard = 2 * (live_pages + step_pages)
    grid = 2 * min(step_cells, 3 * live_pages // 2) + step_pages
    costs = f"a step costs {grid} pages in grid, {standard} in standard"
    return Choice("grid" if grid < standard else "standard", f"rows come unsorted; {costs}")
