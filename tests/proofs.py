"""The proofs we publish: what was tried, how often, and what failed.

A test that is a proof carries the mark `proof` with the name of its row in the table; `tried(n)`
says how many cases it has gone through so far (a test that says nothing counts as one):

    @pytest.mark.proof("kill -9 while committing")
    def test_kills(...):
        for seed in range(campaign(300, 10_000)):
            ...
            tried()

`make campaign` runs all proofs in their long form, prints the table, and with `--proof FILE` writes
it down.  In `make test` the same tests run in their short form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_cases = 0


def tried(cases: int = 1) -> None:
    """Count cases of the test that runs."""
    global _cases
    _cases += cases


def taken() -> int:
    """The cases counted since the last call."""
    global _cases
    cases, _cases = _cases, 0
    return cases


@dataclass
class Row:
    """One line of the table."""

    what: str
    tests: int = 0
    cases: int = 0
    failed: int = 0
    skipped: int = 0


def table(reports: Iterable[Any]) -> list[Row]:
    """One row for each proof, from pytest's reports of all tests."""
    rows: dict[str, Row] = {}
    for report in reports:
        for what, cases in (value for name, value in report.user_properties if name == "proof"):
            row = rows.setdefault(what, Row(what))
            if report.when == "call" or report.outcome != "passed":
                row.tests += 1
                row.cases += cases if report.outcome != "skipped" else 0
                row.failed += report.outcome == "failed"
                row.skipped += report.outcome == "skipped"
    return [rows[what] for what in sorted(rows)]


def as_text(rows: list[Row]) -> list[str]:
    """The table for a terminal."""
    width = max(len(row.what) for row in rows)
    head = f"{'proof':<{width}}  {'tests':>6}  {'cases':>9}  {'failed':>6}  {'skipped':>7}"
    lines = [
        f"{r.what:<{width}}  {r.tests:>6}  {r.cases:>9,}  {r.failed:>6}  {r.skipped:>7}"
        for r in rows
    ]
    return [head, *lines]


def as_markdown(rows: list[Row]) -> str:
    """The table for a document."""
    lines = [f"| {r.what} | {r.tests} | {r.cases:,} | {r.failed} | {r.skipped} |" for r in rows]
    head = ["| proof | tests | cases | tests failed | tests skipped |", "|---|---|---|---|---|"]
    return "\n".join([*head, *lines]) + "\n"
