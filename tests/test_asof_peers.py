"""The cases by which merge_asof, join_asof and DuckDB's ASOF test themselves, asked of `asof_join`.

    left   t = 1  5  10          "ace": the left rows' matches, by the right rows' letters in
    right  t = 1  2  3  6  7            their order; "." is none
               a  b  c  d  e

Each case is restated in small tables, a few with the peers' own numbers, and the answer written
down.  A second test asks
the peers named in the case the same and finds the same letters.  A case names no peer where they
refuse (nulls), differ among themselves, or have no such question.

pandas and Polars want sorted input: they get the rows sorted, and their answer is put back in the
left rows' order.  Of equal right rows they take the last one backward and the first one forward,
DuckDB any.  Of one before and one after that are equally near pandas and we take the one before,
Polars the one after.  DuckDB has neither nearest nor a tolerance; a match too far away is taken
away afterwards, which is the same because it is the nearest one.
"""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from math import inf, nan
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import matwin

Columns = dict[str, Any]
ALL, BOTH, PANDAS, POLARS, DUCKDB, NONE = (
    "pandas polars duckdb", "pandas polars", "pandas", "polars", "duckdb", "",
)  # fmt: skip


class Case(NamedTuple):
    """What is asked of two tables, the answer, and who gives the same one."""

    name: str
    left: Columns
    right: Columns
    asked: dict[str, Any]
    answer: str
    peers: str
    types: dict[str, pa.DataType] = {}  # noqa: RUF012

    @property
    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Both sides, the left rows numbered and the right ones with their letters."""
        left, right = (
            pa.table({name: pa.array(list(values), self.types.get(name))
                      for name, values in columns.items()})
            for columns in (self.left, self.right)
        )  # fmt: skip
        numbers = pa.array(range(left.num_rows), pa.int64())
        letters = pa.array(list(string.ascii_lowercase[: right.num_rows]), pa.string())
        return left.append_column("row", numbers), right.append_column("letter", letters)


def at(*minutes: float) -> list[datetime]:
    """Times of a day."""
    return [datetime(2024, 3, 1, 9, 30) + timedelta(minutes=m) for m in minutes]


def days(*numbers: int) -> list[date]:
    """Days of a month."""
    return [date(2024, 2, number) for number in numbers]


def spans(*seconds: float) -> list[timedelta]:
    """Durations."""
    return [timedelta(seconds=s) for s in seconds]


# fmt: off
# ── merge_asof: one column ────────────────────────────────────────────────────────────────────

ONE_COLUMN = [
    Case("whole numbers, backward", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]}, {"on": "t"}, "ace",
         ALL),
    Case("whole numbers, backward, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "tolerance": 1}, "a..", ALL),
    Case("whole numbers, backward, no exact", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "allow_exact_matches": False}, ".ce", ALL),
    Case("whole numbers, backward, no exact, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "allow_exact_matches": False, "tolerance": 1}, "...", ALL),
    Case("whole numbers, forward", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "forward"}, "ad.", ALL),
    Case("whole numbers, forward, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "forward", "tolerance": 1}, "ad.", ALL),
    Case("whole numbers, forward, no exact", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False}, "bd.", ALL),
    Case("whole numbers, forward, no exact, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False, "tolerance": 1}, "bd.",
         ALL),
    Case("whole numbers, nearest", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "nearest"}, "ade", BOTH),
    Case("whole numbers, nearest, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "nearest", "tolerance": 1}, "ad.", BOTH),
    Case("whole numbers, nearest, no exact", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "nearest", "allow_exact_matches": False}, "bde", BOTH),
    Case("whole numbers, nearest, no exact, within 1", {"t": [1, 5, 10]}, {"t": [1, 2, 3, 6, 7]},
         {"on": "t", "direction": "nearest", "allow_exact_matches": False, "tolerance": 1}, "bd.",
         BOTH),
    *(Case(f"whole numbers, {direction}, no exact, within 0", {"t": [1, 5, 10]}, {"t": [1, 5, 6]},
           {"on": "t", "direction": direction, "allow_exact_matches": False, "tolerance": 0},
           "...", peers)
      for direction, peers in (("backward", ALL), ("forward", ALL), ("nearest", BOTH))),
    Case("whole numbers, backward, no exact, within a half", {"t": [1, 5, 10]}, {"t": [1, 5, 6]},
         {"on": "t", "allow_exact_matches": False, "tolerance": 0.5}, "...", DUCKDB),
    Case("fractions, forward, no exact, within 0", {"t": [0.5, 5.0]}, {"t": [0.5, 5.5]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False, "tolerance": 0.0}, "..",
         ALL),
    Case("whole numbers, backward, no exact, within 0, inner", {"t": [1, 5]}, {"t": [1, 4]},
         {"on": "t", "allow_exact_matches": False, "tolerance": 0, "how": "inner"}, "", NONE),
    Case("ends beyond both sides, backward", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t"}, ".abd", ALL),
    Case("ends beyond both sides, backward, within 4", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t", "tolerance": 4}, ".ab.", ALL),
    Case("ends beyond both sides, forward", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t", "direction": "forward"}, "aac.", ALL),
    Case("ends beyond both sides, forward, within 4", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t", "direction": "forward", "tolerance": 4}, "aac.", ALL),
    Case("ends beyond both sides, nearest", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t", "direction": "nearest"}, "aacd", BOTH),
    Case("ends beyond both sides, nearest, within 4", {"t": [-4, 0, 8, 30]}, {"t": [0, 4, 11, 20]},
         {"on": "t", "direction": "nearest", "tolerance": 4}, "aac.", BOTH),
    Case("floats, backward", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t"}, "abcd", ALL),
    Case("floats, backward, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]},
         {"t": [0.5, 1.75, 2.25, 3.5]}, {"on": "t", "tolerance": 0.5}, "abc.", ALL),
    Case("floats, backward, no exact", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "allow_exact_matches": False}, "aacd", ALL),
    Case("floats, backward, no exact, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]},
         {"t": [0.5, 1.75, 2.25, 3.5]}, {"on": "t", "allow_exact_matches": False, "tolerance": 0.5},
         "a.c.", ALL),
    Case("floats, forward", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "forward"}, "bbd.", ALL),
    Case("floats, forward, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "forward", "tolerance": 0.5}, ".b..", ALL),
    Case("floats, forward, no exact", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False}, "bcd.", ALL),
    Case("floats, forward, no exact, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]},
         {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False, "tolerance": 0.5},
         ".c..", ALL),
    Case("floats, nearest", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "nearest"}, "abcd", BOTH),
    Case("floats, nearest, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "nearest", "tolerance": 0.5}, "abc.", BOTH),
    Case("floats, nearest, no exact", {"t": [1.0, 1.75, 2.5, 9.0]}, {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "nearest", "allow_exact_matches": False}, "accd", BOTH),
    Case("floats, nearest, no exact, within 0.5", {"t": [1.0, 1.75, 2.5, 9.0]},
         {"t": [0.5, 1.75, 2.25, 3.5]},
         {"on": "t", "direction": "nearest", "allow_exact_matches": False, "tolerance": 0.5},
         "acc.", BOTH),
    Case("fractions of a tolerance", {"t": [5019.545, 5020.0]}, {"t": [5019.544, 5019.996, 5021.0]},
         {"on": "t", "tolerance": 0.0015}, "a.", ALL),
    Case("left rows with equal values", {"t": [3, 3, 3, 4]}, {"t": [1, 3]}, {"on": "t"}, "bbbb",
         ALL),
    Case("equal right rows: the last one before", {"t": [2, 3]}, {"t": [2, 2, 2, 9]}, {"on": "t"},
         "cc", BOTH),
    Case("equal right rows: the first one after", {"t": [1, 2]}, {"t": [0, 2, 2, 2]},
         {"on": "t", "direction": "forward", "ties": "first"}, "bb", BOTH),
    Case("equal right rows, without exact ones", {"t": [2, 3]}, {"t": [1, 1, 2, 2]},
         {"on": "t", "allow_exact_matches": False}, "bd", BOTH),
    Case("equal right rows: the last one after", {"t": [1, 2]}, {"t": [0, 2, 2, 2]},
         {"on": "t", "direction": "forward"}, "dd", NONE),
    Case("equal right rows: the first one before", {"t": [2, 3]}, {"t": [2, 2, 2, 9]},
         {"on": "t", "ties": "first"}, "aa", NONE),
    Case("equal right rows: all of them", {"t": [2, 3, 1]}, {"t": [2, 2, 9, 2]},
         {"on": "t", "ties": "all"}, "abdabd.", NONE),
    Case("two names of the column", {"sent": [2, 6]}, {"seen": [1, 3, 5]}, {"on": ("sent", "seen")},
         "ac", ALL),
    Case("two names, forward, within 1", {"sent": [2, 6, 4]}, {"seen": [1, 3, 9]},
         {"on": ("sent", "seen"), "direction": "forward", "tolerance": 1}, "b..", ALL),
    Case("the smallest and the greatest number", {"t": [-(2**63), 0, 2**63 - 1]},
         {"t": [-(2**63), 2**63 - 1]}, {"on": "t"}, "aab", ALL),
    Case("nearest across the whole range", {"t": [-2, 5]}, {"t": [-(2**63), 2**63 - 1]},
         {"on": "t", "direction": "nearest"}, "ab", POLARS),
    Case("far apart, within the greatest number", {"t": [2**62]}, {"t": [-(2**62) + 1]},
         {"on": "t", "tolerance": 2**63 - 1}, "a", ALL),
    Case("as near before as after: the one before", {"t": [5, 15]}, {"t": [0, 10, 20]},
         {"on": "t", "direction": "nearest"}, "ab", PANDAS),
    Case("as near, in the other order: the one before", {"t": [5]}, {"t": [10, 0]},
         {"on": "t", "direction": "nearest"}, "b", PANDAS),
    Case("type int8", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", ALL, {"t": pa.int8()}),
    Case("type int16", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", ALL, {"t": pa.int16()}),
    Case("type int32", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", ALL, {"t": pa.int32()}),
    Case("type uint8", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", BOTH, {"t": pa.uint8()}),
    Case("type uint16", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", BOTH, {"t": pa.uint16()}),
    Case("type uint32", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", BOTH, {"t": pa.uint32()}),
    Case("type uint64", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", BOTH, {"t": pa.uint64()}),
    Case("type float32", {"t": [5, 2, 25, 100, 78, 120, 79]}, {"t": [5, 28, 25, 100, 78]},
         {"on": "t", "tolerance": 10}, "a.cde.e", ALL, {"t": pa.float32()}),
    Case("unsigned, near zero", {"t": [0, 1, 5]}, {"t": [1, 4]}, {"on": "t", "tolerance": 3}, ".ab",
         BOTH, {"t": pa.uint64()}),
    Case("unsigned, forward, near the end", {"t": [2**64 - 3, 2**64 - 1]}, {"t": [3, 2**64 - 2]},
         {"on": "t", "direction": "forward", "tolerance": 5}, "b.", ALL, {"t": pa.uint64()}),
]

# ── merge_asof: with keys ─────────────────────────────────────────────────────────────────────

WITH_KEYS = [
    Case("quotes, backward", {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k"}, "cb.cg", ALL),
    Case("quotes, backward, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "tolerance": "2m"}, "cb..g", ALL),
    Case("quotes, backward, no exact",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "allow_exact_matches": False}, "ab.ce", ALL),
    Case("quotes, backward, no exact, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "allow_exact_matches": False, "tolerance": "2m"}, "ab...", ALL),
    Case("quotes, forward", {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "forward"}, "cedfg", ALL),
    Case("quotes, forward, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "forward", "tolerance": "2m"}, "c.dfg", ALL),
    Case("quotes, forward, no exact", {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "forward", "allow_exact_matches": False}, "fedf.",
         ALL),
    Case("quotes, forward, no exact, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "forward", "allow_exact_matches": False,
          "tolerance": "2m"}, "..df.", ALL),
    Case("quotes, nearest", {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "nearest"}, "cbdfg", BOTH),
    Case("quotes, nearest, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "nearest", "tolerance": "2m"}, "cbdfg", BOTH),
    Case("quotes, nearest, no exact", {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "nearest", "allow_exact_matches": False}, "abdfe",
         BOTH),
    Case("quotes, nearest, no exact, within 2m",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "direction": "nearest", "allow_exact_matches": False,
          "tolerance": "2m"}, "abdf.", BOTH),
    Case("quotes, a duration as tolerance",
         {"t": at(1, 2, 2, 7, 9), "k": ["MS", "GO", "AA", "MS", "GO"]},
         {"t": at(0, 0, 1, 3, 6, 8, 9), "k": ["MS", "GO", "MS", "AA", "GO", "MS", "GO"]},
         {"on": "t", "by": "k", "tolerance": timedelta(minutes=1)}, "c...g", BOTH),
    Case("a key that is only left", {"t": [3, 4], "k": ["x", "y"]}, {"t": [1, 2], "k": ["x", "z"]},
         {"on": "t", "by": "k"}, "a.", ALL),
    Case("keys that are whole numbers", {"t": [3, 4, 5, 6], "k": [1, 2, 1, 3]},
         {"t": [1, 3, 4, 5], "k": [2, 1, 1, 2]}, {"on": "t", "by": "k"}, "bac.", ALL),
    Case("keys far apart", {"t": [3, 4, 5], "k": [-(2**62), 2**62, 0]},
         {"t": [1, 2, 3], "k": [2**62, -(2**62), 7]}, {"on": "t", "by": "k"}, "ba.", ALL),
    Case("keys that are true or false", {"t": [3, 4, 5], "k": [True, False, True]},
         {"t": [1, 2, 4], "k": [False, True, True]}, {"on": "t", "by": "k"}, "bac", ALL),
    Case("keys that are days", {"t": [3, 4, 5], "k": days(1, 2, 3)},
         {"t": [1, 2, 4], "k": days(2, 1, 1)}, {"on": "t", "by": "k"}, "ba.", ALL),
    Case("keys that are times", {"t": [3, 4, 5], "k": at(1, 2, 3)},
         {"t": [1, 2, 4], "k": at(2, 1, 2)}, {"on": "t", "by": "k"}, "bc.", ALL),
    Case("keys that are categories", {"t": [3, 4, 5], "k": "aba"}, {"t": [1, 2, 4], "k": "bab"},
         {"on": "t", "by": "k"}, "bcb", ALL, {"k": pa.dictionary(pa.int8(), pa.string())}),
    Case("two names of the key", {"t": [3, 4], "buyer": "ab"}, {"t": [1, 2, 3], "seller": "bab"},
         {"on": "t", "by": ("buyer", "seller")}, "bc", ALL),
    Case("two keys, backward", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"]}, "acb.", ALL),
    Case("two keys, backward, within 2", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"], "tolerance": 2}, "acb.", ALL),
    Case("two keys, forward", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"], "direction": "forward"}, ".edf", ALL),
    Case("two keys, forward, within 2", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"], "direction": "forward", "tolerance": 2}, ".edf", ALL),
    Case("two keys, nearest", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"], "direction": "nearest"}, "acdf", BOTH),
    Case("two keys, nearest, within 2", {"t": [4, 6, 6, 9], "k": "aabb", "m": [1, 2, 2, 1]},
         {"t": [3, 4, 5, 7, 8, 10], "k": "ababab", "m": [1, 2, 2, 2, 2, 1]},
         {"on": "t", "by": ["k", "m"], "direction": "nearest", "tolerance": 2}, "acdf", BOTH),
    Case("two keys, each with two names", {"t": [4, 6], "k": "ab", "m": [1, 2]},
         {"t": [3, 4, 5], "key": "aab", "mic": [1, 2, 2]},
         {"on": "t", "by": [("k", "key"), ("m", "mic")]}, "ac", ALL),
    Case("the same value at several keys", {"t": [5, 5, 5], "k": "abc"},
         {"t": [5, 5, 5], "k": "cba"}, {"on": "t", "by": "k"}, "cba", ALL),
    Case("sorted within keys alone", {"t": [1, 3, 5, 0, 2, 4], "k": "aaabbb"},
         {"t": [0, 2, 4, 1, 3, 5], "k": "aaabbb"}, {"on": "t", "by": "k"}, "abc.de", ALL),
]

# ── join_asof: times, days and durations ──────────────────────────────────────────────────────

TIMES = [
    Case("times, backward", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)}, {"on": "t"}, ".bbd",
         ALL),
    Case("times, backward, within 1m", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)},
         {"on": "t", "tolerance": "1m"}, ".b.d", ALL),
    Case("times, forward", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)},
         {"on": "t", "direction": "forward"}, "abc.", ALL),
    Case("times, forward, within 1m", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)},
         {"on": "t", "direction": "forward", "tolerance": "1m"}, "abc.", ALL),
    Case("times, nearest", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)},
         {"on": "t", "direction": "nearest"}, "abcd", BOTH),
    Case("times, nearest, within 1m", {"t": at(0, 4, 10, 21)}, {"t": at(1, 4, 11, 20)},
         {"on": "t", "direction": "nearest", "tolerance": "1m"}, "abcd", BOTH),
    Case("a time zone", {"t": [m.replace(tzinfo=UTC) for m in at(1, 5)]},
         {"t": [m.replace(tzinfo=UTC) for m in at(0, 3, 5)]}, {"on": "t"}, "ac", ALL,
         {"t": pa.timestamp("us", "UTC")}),
    Case("a time zone, within 1min", {"t": [m.replace(tzinfo=UTC) for m in at(2, 9)]},
         {"t": [m.replace(tzinfo=UTC) for m in at(1, 7)]}, {"on": "t", "tolerance": "1m"}, "a.",
         BOTH, {"t": pa.timestamp("ns", "UTC")}),
    Case("times in s", {"t": at(2, 9)}, {"t": at(1, 7, 9)},
         {"on": "t", "allow_exact_matches": False}, "ab", ALL, {"t": pa.timestamp("s")}),
    Case("times in ms", {"t": at(2, 9)}, {"t": at(1, 7, 9)},
         {"on": "t", "allow_exact_matches": False}, "ab", ALL, {"t": pa.timestamp("ms")}),
    Case("times in us", {"t": at(2, 9)}, {"t": at(1, 7, 9)},
         {"on": "t", "allow_exact_matches": False}, "ab", ALL, {"t": pa.timestamp("us")}),
    Case("times in ns", {"t": at(2, 9)}, {"t": at(1, 7, 9)},
         {"on": "t", "allow_exact_matches": False}, "ab", ALL, {"t": pa.timestamp("ns")}),
    Case("days, backward", {"t": days(1, 9, 15, 29)}, {"t": days(2, 9, 14, 20)}, {"on": "t"},
         ".bcd", "polars duckdb"),
    Case("days, forward", {"t": days(1, 9, 15, 29)}, {"t": days(2, 9, 14, 20)},
         {"on": "t", "direction": "forward"}, "abd.", "polars duckdb"),
    Case("days, nearest", {"t": days(1, 9, 15, 29)}, {"t": days(2, 9, 14, 20)},
         {"on": "t", "direction": "nearest"}, "abcd", POLARS),
    Case("days, within 3d", {"t": days(1, 9, 15, 29)}, {"t": days(2, 8, 11, 20)},
         {"on": "t", "tolerance": "3d"}, ".b..", "polars duckdb"),
    Case("days, nearest within 1d", {"t": days(1, 9, 15, 29)}, {"t": days(2, 7, 14, 20)},
         {"on": "t", "direction": "nearest", "tolerance": "1d"}, "a.c.", POLARS),
    Case("durations, backward", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)}, {"on": "t"},
         "abc", BOTH),
    Case("durations, backward, no exact", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)},
         {"on": "t", "allow_exact_matches": False}, "aac", BOTH),
    Case("durations, forward", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)},
         {"on": "t", "direction": "forward"}, "bb.", BOTH),
    Case("durations, forward, no exact", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)},
         {"on": "t", "direction": "forward", "allow_exact_matches": False}, "bc.", BOTH),
    Case("durations, nearest", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)},
         {"on": "t", "direction": "nearest"}, "abc", BOTH),
    Case("durations, nearest, no exact", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 2.5, 3)},
         {"on": "t", "direction": "nearest", "allow_exact_matches": False}, "acc", BOTH),
    Case("durations, within 1s", {"t": spans(1, 2.5, 7)}, {"t": spans(0.5, 1, 3)},
         {"on": "t", "tolerance": "1s"}, "b..", BOTH),
    Case("a tolerance of nothing is equality", {"t": at(1, 2, 4, 7)}, {"t": at(2, 3, 7)},
         {"on": "t", "direction": "forward", "tolerance": "0s"}, ".a.c", ALL),
    Case("a tolerance of nothing, backward", {"t": [1, 2, 4, 7]}, {"t": [2, 3, 7]},
         {"on": "t", "tolerance": 0}, ".a.c", ALL),
    Case("a tolerance of nothing, nearest", {"t": [1, 2, 4, 7]}, {"t": [2, 3, 7]},
         {"on": "t", "direction": "nearest", "tolerance": 0}, ".a.c", BOTH),
]

# ── join_asof: nearest, one row, none ─────────────────────────────────────────────────────────

EDGES = [
    Case("one right row is the nearest of all", {"t": [0.9, 2.1, 2.8]}, {"t": [2.0]},
         {"on": "t", "direction": "nearest"}, "aaa", BOTH),
    Case("the last right row is the nearest of many", {"t": [9, 9, 10, 10, 12]},
         {"t": [1, 2, 3, 10]}, {"on": "t", "direction": "nearest"}, "ddddd", BOTH),
    Case("nearest, below the first right row", {"t": [-9, -8, 1]}, {"t": [0, 5]},
         {"on": "t", "direction": "nearest"}, "aaa", BOTH),
    Case("nearest by key, backward", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"}, {"on": "t", "by": "k"}, ".abb", ALL),
    Case("nearest by key, backward, within 2", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"}, {"on": "t", "by": "k", "tolerance": 2}, ".a..", ALL),
    Case("nearest by key, forward", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"}, {"on": "t", "by": "k", "direction": "forward"}, "acdd",
         ALL),
    Case("nearest by key, forward, within 2", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"},
         {"on": "t", "by": "k", "direction": "forward", "tolerance": 2}, "ac.d", ALL),
    Case("nearest by key, nearest", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"}, {"on": "t", "by": "k", "direction": "nearest"}, "acbd",
         PANDAS),
    Case("nearest by key, nearest, within 2", {"t": [1, 4, 6, 8], "k": "aabb"},
         {"t": [2, 3, 5, 9], "k": "abab"},
         {"on": "t", "by": "k", "direction": "nearest", "tolerance": 2}, "ac.d", BOTH),
    Case("no right row, backward", {"t": [1, 2]}, {"t": []}, {"on": "t"}, "..", ALL,
         {"t": pa.int64()}),
    Case("no left row, backward", {"t": []}, {"t": [1, 2]}, {"on": "t"}, "", ALL,
         {"t": pa.int64()}),
    Case("no right row, forward", {"t": [1, 2]}, {"t": []}, {"on": "t", "direction": "forward"},
         "..", ALL, {"t": pa.int64()}),
    Case("no left row, forward", {"t": []}, {"t": [1, 2]}, {"on": "t", "direction": "forward"}, "",
         ALL, {"t": pa.int64()}),
    Case("no right row, nearest", {"t": [1, 2]}, {"t": []}, {"on": "t", "direction": "nearest"},
         "..", BOTH, {"t": pa.int64()}),
    Case("no left row, nearest", {"t": []}, {"t": [1, 2]}, {"on": "t", "direction": "nearest"}, "",
         BOTH, {"t": pa.int64()}),
    Case("no right row, by key", {"t": [1, 2], "k": "ab"}, {"t": [], "k": ""},
         {"on": "t", "by": "k"}, "..", ALL, {"t": pa.int64(), "k": pa.string()}),
    Case("all right rows are later", {"t": [1, 2, 3]}, {"t": [4, 5]}, {"on": "t"}, "...", ALL),
    Case("all right rows are earlier", {"t": [6, 7]}, {"t": [4, 5]},
         {"on": "t", "direction": "forward"}, "..", ALL),
    Case("nulls to be near in match nothing", {"t": [None, 2, 4]}, {"t": [1, None, 3]}, {"on": "t"},
         ".ac", "polars duckdb"),
    Case("nulls to be near in, forward", {"t": [None, 2, 4]}, {"t": [1, None, 3]},
         {"on": "t", "direction": "forward"}, ".c.", "polars duckdb"),
    Case("nulls to be near in, nearest", {"t": [None, 2, 8]}, {"t": [2, None, 6]},
         {"on": "t", "direction": "nearest"}, ".ac", POLARS),
    Case("nulls to be equal in match nothing", {"t": [3, 4, 5], "k": ["a", None, "b"]},
         {"t": [1, 2, 3], "k": ["b", "a", None]}, {"on": "t", "by": "k"}, "b.a", "polars duckdb"),
    Case("a null in one of two keys", {"t": [3, 4], "k": "aa", "m": [1, None]},
         {"t": [1, 2], "k": "aa", "m": [1, None]}, {"on": "t", "by": ["k", "m"]}, "a.",
         "polars duckdb"),
    Case("NaN matches nothing; Polars and DuckDB take it for the greatest", {"t": [1.0, nan, 3.0]},
         {"t": [0.0, 2.0, nan]}, {"on": "t"}, "a.b", NONE),
    Case("infinity matches nothing; the peers take it for a value", {"t": [1.0, inf, -inf]},
         {"t": [-inf, 0.5, inf]}, {"on": "t"}, "b..", NONE),
]

# ── DuckDB's ASOF: the four inequalities, inner and left ──────────────────────────────────────

INEQUALITIES = [
    Case("left >= right", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]}, {"on": "t"}, ".aabbc", ALL),
    Case("left >= right, inner", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "how": "inner"}, "aabbc", DUCKDB),
    Case("left >= right, by key", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]}, {"on": "t", "by": "k"}, ".babcd", ALL),
    Case("left >= right, by key, inner", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]}, {"on": "t", "by": "k", "how": "inner"},
         "babcd", DUCKDB),
    Case("left > right", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "allow_exact_matches": False}, "..aabc", ALL),
    Case("left > right, inner", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "allow_exact_matches": False, "how": "inner"}, "aabc", DUCKDB),
    Case("left > right, by key", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "allow_exact_matches": False}, "..abcd", ALL),
    Case("left > right, by key, inner", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "allow_exact_matches": False, "how": "inner"}, "abcd", DUCKDB),
    Case("left <= right", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "direction": "forward", "ties": "first"}, "aabbc.", ALL),
    Case("left <= right, inner", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "direction": "forward", "ties": "first", "how": "inner"}, "aabbc", DUCKDB),
    Case("left <= right, by key", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "direction": "forward", "ties": "first"}, "abcde.", ALL),
    Case("left <= right, by key, inner", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "direction": "forward", "ties": "first", "how": "inner"}, "abcde",
         DUCKDB),
    Case("left < right", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False, "ties": "first"},
         "abbcc.", ALL),
    Case("left < right, inner", {"t": [0, 1, 2, 3, 5, 8]}, {"t": [1, 3, 6]},
         {"on": "t", "direction": "forward", "allow_exact_matches": False, "ties": "first",
          "how": "inner"}, "abbcc", DUCKDB),
    Case("left < right, by key", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "direction": "forward", "allow_exact_matches": False,
          "ties": "first"}, "adcde.", ALL),
    Case("left < right, by key, inner", {"t": [0, 1, 2, 3, 5, 8], "k": [1, 2, 1, 2, 1, 2]},
         {"t": [1, 1, 4, 5, 8], "k": [1, 2, 1, 2, 1]},
         {"on": "t", "by": "k", "direction": "forward", "allow_exact_matches": False,
          "ties": "first", "how": "inner"}, "adcde", DUCKDB),
    Case("inner, nobody", {"t": [1]}, {"t": [2]}, {"on": "t", "how": "inner"}, "", DUCKDB),
    Case("inner, no right row", {"t": [1]}, {"t": []}, {"on": "t", "how": "inner"}, "", DUCKDB,
         {"t": pa.int64()}),
    Case("inner, beyond the tolerance", {"t": [1, 9]}, {"t": [0, 3]},
         {"on": "t", "how": "inner", "tolerance": 2}, "a", NONE),
    Case("texts with a common beginning", {"t": [3, 4, 5], "k": ["key-1", "key-10", "key-100"]},
         {"t": [1, 2, 3], "k": ["key-10", "key-1", "key-1000"]}, {"on": "t", "by": "k"}, "ba.",
         ALL),
    Case("long texts that differ at their end",
         {"t": [3, 4], "k": ["x" * 40 + "a", "x" * 40 + "b"]},
         {"t": [1, 2], "k": ["x" * 40 + "b", "x" * 40]}, {"on": "t", "by": "k"}, ".a", ALL),
    Case("an empty text is a key", {"t": [3, 4], "k": ["", "a"]}, {"t": [1, 2], "k": ["a", ""]},
         {"on": "t", "by": "k"}, "ba", ALL),
    Case("both sides out of order", {"t": [8, 1, 5, 3]}, {"t": [6, 2, 4, 0]}, {"on": "t"}, "adcb",
         ALL),
    Case("both sides out of order, by key", {"t": [8, 1, 5, 3], "k": "abab"},
         {"t": [6, 2, 4, 0], "k": "baab"}, {"on": "t", "by": "k"}, "cdcd", ALL),
    Case("negative zero is zero", {"t": [0.0, -0.0]}, {"t": [-0.0]}, {"on": "t"}, "aa", ALL),
    Case("the smallest steps of a float", {"t": [5e-324, 1.0]},
         {"t": [0.0, 5e-324, 1.0000000000000002]}, {"on": "t"}, "bb", ALL),
]

CASES = [*ONE_COLUMN, *WITH_KEYS, *TIMES, *EDGES, *INEQUALITIES]
# fmt: on


# ── the peers ────────────────────────────────────────────────────────────────────────────────

CONNECTION = duckdb.connect(config={"threads": 1})


def shown(letters: list[Any]) -> str:
    """A letter for each row."""
    return "".join(letter if isinstance(letter, str) else "." for letter in letters)


def columns_of(case: Case) -> tuple[list[str], list[str], list[str], list[str]]:
    """The names of `on` and `by`, left and right."""
    on, by = case.asked["on"], case.asked.get("by") or []
    on = on if isinstance(on, tuple) else (on, on)
    by = [name if isinstance(name, tuple) else (name, name) for name in
          (by if isinstance(by, list) else [by])]  # fmt: skip
    return [on[0]], [on[1]], [ours for ours, _ in by], [theirs for _, theirs in by]


def by_row(rows: list[Any], letters: list[Any]) -> str:
    """Letters in the order of the left rows."""
    return shown([letter for _, letter in sorted(zip(rows, letters, strict=True))])


def pandas_says(case: Case) -> str:
    """`merge_asof` of the rows in order."""
    (ours,), (theirs,), our_keys, their_keys = columns_of(case)
    left, right = (table.to_pandas() for table in case.tables)
    limit = case.asked.get("tolerance")
    found = pd.merge_asof(
        left.sort_values(ours, kind="stable"), right.sort_values(theirs, kind="stable"),
        left_on=ours, right_on=theirs, left_by=our_keys or None, right_by=their_keys or None,
        tolerance=pd.Timedelta(limit) if isinstance(limit, str | timedelta) else limit,
        direction=case.asked.get("direction", "backward"),
        allow_exact_matches=case.asked.get("allow_exact_matches", True),
    )  # fmt: skip
    return by_row(found["row"].tolist(), found["letter"].tolist())


def polars_says(case: Case) -> str:
    """`join_asof` of the rows in order."""
    (ours,), (theirs,), our_keys, their_keys = columns_of(case)
    left, right = (pl.DataFrame(pl.from_arrow(table)) for table in case.tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it can't check the order within keys
        found = left.sort(ours, maintain_order=True).join_asof(
            right.sort(theirs, maintain_order=True),
            left_on=ours, right_on=theirs, by_left=our_keys or None, by_right=their_keys or None,
            tolerance=case.asked.get("tolerance"),
            strategy=case.asked.get("direction", "backward"),
            allow_exact_matches=case.asked.get("allow_exact_matches", True),
        )  # fmt: skip
    return by_row(found["row"].to_list(), found["letter"].to_list())


def duckdb_says(case: Case) -> str:
    """ASOF LEFT JOIN, or ASOF JOIN; what is too far away is nobody."""
    (ours,), (theirs,), our_keys, their_keys = columns_of(case)
    left, right = case.tables
    sign = ">" if case.asked.get("direction", "backward") == "backward" else "<"
    sign += "=" if case.asked.get("allow_exact_matches", True) else ""
    equal = "".join(f' AND l."{a}" = r."{b}"' for a, b in zip(our_keys, their_keys, strict=True))
    limit, near = case.asked.get("tolerance"), "true"
    if limit is not None:
        nearest, far = (f'r."{theirs}"', f'l."{ours}"')[:: 1 if sign[0] == ">" else -1]
        far_end = f"INTERVAL '{limit}'" if isinstance(limit, str) else repr(limit)
        near = f"{nearest} >= {far} - {far_end}"
    how = "" if case.asked.get("how") == "inner" else "LEFT"
    CONNECTION.register("our_rows", left)
    CONNECTION.register("their_rows", right)
    found = CONNECTION.sql(
        f"SELECT l.row, CASE WHEN {near} THEN r.letter END FROM our_rows l "
        f'ASOF {how} JOIN their_rows r ON l."{ours}" {sign} r."{theirs}"{equal}'
    ).fetchall()
    return by_row(*([row[at] for row in found] for at in (0, 1)))


PEERS: dict[str, Callable[[Case], str]] = {
    "pandas": pandas_says, "polars": polars_says, "duckdb": duckdb_says,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer(case: Case) -> None:
    left, right = case.tables
    found = matwin.asof_join(left, right, **case.asked).to_arrow()
    assert shown(found["letter"].to_pylist()) == case.answer
    if case.asked.get("how") != "inner" and case.asked.get("ties") != "all":
        assert found["row"].to_pylist() == list(range(left.num_rows))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_input_in_any_order_has_the_same_answer(case: Case) -> None:
    left, right = case.tables
    turned = left.take(pa.array(range(left.num_rows - 1, -1, -1), pa.int64()))
    found = matwin.asof_join(turned, right, **case.asked).to_arrow()
    by_row = found.take(
        pa.array(sorted(range(found.num_rows), key=lambda n: found["row"][n].as_py()), pa.int64())
    )
    assert sorted(shown(by_row["letter"].to_pylist())) == sorted(case.answer)
    if case.asked.get("ties") != "all":
        assert shown(by_row["letter"].to_pylist()) == case.answer


@pytest.mark.parametrize(
    ("case", "peer"),
    [
        pytest.param(case, peer, id=f"{peer}: {case.name}")
        for case in CASES
        for peer in case.peers.split()
    ],
)
def test_the_peer_says_the_same(case: Case, peer: str) -> None:
    assert PEERS[peer](case) == case.answer


def test_there_are_enough_cases() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100
    asked = {repr((case.left, case.right, case.asked, case.types)) for case in CASES}
    assert len(asked) == len(CASES)
