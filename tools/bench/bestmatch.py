"""`matwin bench bestmatch`: the left bestmatch join beside others, with little memory, growing.

    20k × 20k    about 32 candidates a row: DuckDB, and the paper's nested loops
    1M × 1M      about 36 candidates a row: input rows a second

DuckDB is asked twice: with NOT EXISTS, as the paper writes the question in SQL, and at its best,
with pairs joined by grid cell and window functions over them, which only two attributes allow.
"""

from __future__ import annotations

import argparse
import sys

from . import suite
from .joins import Case
from .measures import Versus
from .rivals import DUCKDB, DUCKDB_CELLS, NESTED_LOOPS
from .suite import Suite

SMALL_ROWS = 20_000
RATE = 1.5e6


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    return suite.run(args, suite_of)


def suite_of(rows: int, seed: int = 0) -> Suite:
    """The cases at a number of rows."""
    few = min(rows, SMALL_ROWS)
    small = Case("bestmatch", few, 32, seed=seed)
    large = Case("bestmatch", rows, 36, seed=seed)
    growing = Case("bestmatch", rows, 36, is_growing=True, seed=seed)
    against = [Versus(DUCKDB_CELLS, few, 80), Versus(DUCKDB, few, 80), Versus(NESTED_LOOPS, few)]
    return Suite(
        beside=[(small, against), (large, [Versus(DUCKDB_CELLS, min(rows, 10 * few))])],
        own=[small, large],
        growth=[growing],
        rates={large: RATE},
    )


if __name__ == "__main__":
    sys.exit("run it as: matwin bench bestmatch")
