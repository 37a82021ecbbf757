"""`matwin bench epsilon`: the ε-join beside others, with little memory, and as it grows.

    2-D      uniform in the unit square, about 9 matches a row; the same with three texts a side
    keyed    one integer time attribute, 1,000 and 10 keys, about 10 matches a row

DuckDB is asked twice.  As one writes the question it tests far more pairs than match, in time that
grows with the square of the rows, so that where a million would take it a quarter of an hour it
gets a fifth of the rows, and we the same.  Joined by grid cell, which is our own idea in SQL, it
does the whole size.  Polars knows no better than the first.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from . import suite
from .joins import Case
from .measures import Versus
from .rivals import CKDTREE, DUCKDB, DUCKDB_CELLS, POLARS
from .suite import Suite


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    return suite.run(args, suite_of)


def suite_of(rows: int, seed: int = 0) -> Suite:
    """The cases at a number of rows."""
    plane = Case("epsilon", rows, 9, seed=seed)
    texts = Case("epsilon", rows, 9, texts=3, seed=seed)
    keyed = Case("epsilon", rows, 10, keys=1_000, seed=seed)
    few_keys = Case("epsilon", rows, 10, keys=10, seed=seed)
    growing = [replace(case, is_growing=True) for case in (plane, keyed)]
    return Suite(
        beside=[
            (plane, [Versus(CKDTREE, rows, 6), *_duckdb(rows, rows // 5, 20)]),
            (texts, [Versus(DUCKDB_CELLS, rows)]),
            (keyed, [*_duckdb(rows, rows, 20), Versus(POLARS, rows, 40)]),
            (few_keys, [*_duckdb(rows, rows // 5, 300), Versus(POLARS, rows // 5)]),
        ],
        own=[plane, texts, keyed, few_keys],
        growth=growing,
    )


def _duckdb(rows: int, rows_written: int, reach: float) -> list[Versus]:
    """Both ways to ask; what is to be reached is shown beside both, whichever was meant."""
    return [Versus(DUCKDB_CELLS, rows, reach), Versus(DUCKDB, rows_written, reach)]


if __name__ == "__main__":
    sys.exit("run it as: matwin bench epsilon")
