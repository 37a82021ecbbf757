"""A job file: a continuous query written down in TOML.

    [sources.calls]                 sources.py opens it: a file, a pattern, "-", or a socket
    path = "calls-*.csv"
    order = {lateness = "5s"}
    [cut]                           matwin.cut.every("60s", on="ts")
    every = "60s"
    on = "ts"
    [query]                         partial(matwin.epsilon_join, matwin.chunks("calls"), …)
    join = "epsilon_join"           or sql = "SELECT …", or query = "SELECT …" at the top
    left = {stream = "calls", last = 1}
    right = "calls"
    on = {ts = "5s"}

Reading a job opens nothing but the job: everything that is wrong in it is told first, in one line
with the file, the key and what to write instead.  Paths are relative to the folder of the job, so
that it can be started from anywhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import matwin
from matwin.hints import FOREIGN, did_you_mean
from matwin.operators.epochs.cut import Cut
from matwin.operators.epochs.query import Chunks
from matwin.options import JoinOptions
from matwin.storage.errors import BudgetError, InputError, MatwinError
from matwin.storage.units import HOW_TO_WRITE, is_duration, nanoseconds, parse_size, shown

KEYS = (
    "sources", "cut", "keep", "tables", "windows", "query", "sink", "sink_from", "state",
    "memory", "page_size", "scratch", "idle_after", "trace",
)  # fmt: skip
SOURCE_KEYS = (
    "path", "listen", "connect", "peers", "format", "schema", "on", "order", "late", "follow",
)  # fmt: skip
PLACES = ("path", "listen", "connect")
CUT_KEYS = ("every", "count", "on_change", "on", "align")
STREAM_CALL = re.compile(r"\bstream(?:_\w+)?\s*\(", re.IGNORECASE)
"""A query that has it says itself how its streams are cut."""
CUT_EXAMPLE = 'write every = "60s" with on = "ts", count = 10000, or on_change = "id"'
JOINS = ("epsilon_join", "bestmatch_join", "asof_join", "window_join")
_AT = re.compile(r"(?P<what>.*) \(at (?P<place>line \d+, column \d+|end of document)\)", re.DOTALL)
MESSAGE_MAX = 800
NAME_BYTES_MAX = 255
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""What an address begins with, such as ``s3://bucket``."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a job file, for messages."""

    file: str
    key: str = ""

    def of(self, name: str) -> Where:
        """A key below this one."""
        plain = name if re.fullmatch(r"[\w-]+", name) else repr(name)
        return Where(self.file, f"{self.key}.{plain}" if self.key else plain)

    def wrong(self, problem: str) -> InputError:
        """The error that this place has a problem."""
        problem = brief(problem)
        return InputError(f"{self.file}: {self.key}: {problem}" if self.key else
                          f"{self.file}: {problem}")  # fmt: skip

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of the library, with the place."""
        try:
            yield
        except InputError as e:
            if str(e).startswith(f"{self.file}: "):
                raise
            raise self.wrong(str(e)) from e


def brief(message: str) -> str:
    """A message whose values are not longer than anybody reads."""
    if len(message) <= MESSAGE_MAX:
        return message
    return f"{message[: MESSAGE_MAX // 2]} … {message[-MESSAGE_MAX // 2 :]}"


@dataclass(frozen=True, slots=True)
class SourceGiven:
    """A source as the job has it."""

    where: Where
    place: str
    """What says where it is: its path, or whom it listens or connects to."""
    path: str | list[str]
    format: str | None = None
    schema: str | dict[str, str] | None = None
    on: str | None = None
    order: Any = "sorted"
    late: Any = "error"
    follow: bool = False
    peers: Any = "one"


@dataclass(frozen=True, slots=True)
class Job:
    """A continuous query, read and checked as far as that goes without opening its sources."""

    where: Where
    query: Any
    sources: dict[str, SourceGiven]
    cut: Cut | None
    """None: the query itself says how its streams are cut."""
    pairs: Any = "all"
    tables: dict[str, str | list[str]] = field(default_factory=dict)
    windows: dict[str, Chunks] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `matwin.continuous_query`."""


def read_job(path: str) -> Job:
    """The job of a file."""
    where = Where(path)
    given = table_of(_parsed(path, where), where, KEYS)
    is_cut_in_query = bool(STREAM_CALL.search(str(given.get("query", ""))))
    for needed, example in (
        ("sources", 'write [sources] and below it a = "a.parquet"'),
        ("cut", f"write [cut] and below it: {CUT_EXAMPLE}"),
        ("query", 'write query = "SELECT …", or [query] with join = "epsilon_join"'),
    ):
        if needed == "cut" and is_cut_in_query:
            continue
        if needed not in given:
            raise where.wrong(f"{needed} is missing; {example}")
    folder = Path(path).expanduser().parent
    sources = _sources(given["sources"], where.of("sources"), folder)
    tables = _tables(given.get("tables", {}), where.of("tables"), folder)
    names = [*sources, *tables]
    windows = _named_chunks(given.get("windows", {}), where.of("windows"), names)
    query, pairs = _query(given["query"], where.of("query"), names)
    if windows and not isinstance(query, str):
        raise where.of("windows").wrong(
            'names for SQL, and the query is a join; write {stream = "a", last = 1} in its place'
        )
    cut = None if is_cut_in_query else _cut(given["cut"], where.of("cut"))
    if is_cut_in_query:
        _check_said_once(given, where)
    options = _options(given, where, folder)
    return Job(where, query, sources, cut, pairs, tables, windows, options)


def _check_said_once(given: Mapping[str, Any], where: Where) -> None:
    """Refuse what a query that cuts its streams says already."""
    for name in ("cut", "keep", "windows"):
        if name in given:
            raise where.of(name).wrong(
                "the query says by STREAM_… how its streams are cut, and how many chunks are kept; "
                "take this out"
            )


def _parsed(path: str, where: Where) -> dict[str, Any]:
    try:
        text = Path(path).expanduser().read_bytes().decode()
        return tomllib.loads(text)
    except FileNotFoundError as e:
        raise InputError(f"{path}: there is no such file; name a job, such as job.toml") from e
    except UnicodeDecodeError as e:
        raise where.wrong(f"byte {e.start} is not UTF-8; save the file as UTF-8") from e
    except (OSError, ValueError) as e:
        found = _AT.fullmatch(str(e))
        if isinstance(e, OSError) or not found:
            raise where.wrong(f"it can't be read: {e}") from e
        what = found["what"]
        raise where.wrong(f"{found['place']}: {what[:1].lower()}{what[1:]}; mend the TOML") from e


def table_of(value: object, where: Where, known: Sequence[str]) -> dict[str, Any]:
    """A table of the file whose keys are known."""
    found = _mapping(value, where)
    for name in found:
        if name not in known:
            raise where.wrong(
                f"there is no key {name!r}{did_you_mean(name, known)}; the keys are "
                f"{', '.join(known)}"
            )
    return found


def _mapping(value: object, where: Where) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise where.wrong(f"{shown(value)} is no table; write [{where.key}] with keys below it")
    return value


def _text(value: object, where: Where, example: str) -> str:
    if not isinstance(value, str) or not value:
        raise where.wrong(f"{shown(value)} is no text; write for example {example}")
    if "\0" in value:
        raise where.wrong(f"{shown(value)} has a NUL, which nothing is called; take it out")
    return value


def _path(value: object, where: Where, example: str) -> str:
    """A text that a file may be called."""
    path = _text(value, where, example)
    if max(len(part.encode()) for part in path.split("/")) > NAME_BYTES_MAX:
        raise where.wrong(f"{shown(path)} is longer than a file's name may be; shorten it")
    return path


# ── sources and tables ───────────────────────────────────────────────────────────────────────


def _sources(value: object, where: Where, folder: Path) -> dict[str, SourceGiven]:
    found = _mapping(value, where)
    if not found:
        raise where.wrong('there is none; write for example a = "a.parquet"')
    return {name: _source(given, where.of(name), folder) for name, given in found.items()}


def _source(value: object, where: Where, folder: Path) -> SourceGiven:
    if isinstance(value, str | list):
        return SourceGiven(where, "path", _paths(value, where, folder))
    given = table_of(value, where, SOURCE_KEYS)
    named = [place for place in PLACES if place in given]
    if len(named) != 1:
        said = " and ".join(named) if named else "path is missing"
        raise where.wrong(f'{said}; write one of path = "calls-*.csv", listen = ":9000", '
                          'connect = "host:9000"')  # fmt: skip
    [place] = named
    path = _paths(given[place], where.of(place), folder if place == "path" else None)
    order = _order(given.get("order", "sorted"), where.of("order"))
    late = given.get("late", "error")
    if late not in ("error", "drop"):
        raise where.of("late").wrong(f'{shown(late)}; choose "error" or "drop"')
    follow = given.get("follow", False)
    if not isinstance(follow, bool):
        raise where.of("follow").wrong(f"{shown(follow)}; write true or false")
    for name, example in (("format", '"csv"'), ("on", '"ts"')):
        if name in given:
            _text(given[name], where.of(name), example)
    if given.get("peers", "one") not in ("one", "all"):
        raise where.of("peers").wrong(f'{shown(given["peers"])}; choose "one" or "all"')
    schema = given.get("schema")
    if schema is not None and not isinstance(schema, str | dict):
        raise where.of("schema").wrong(
            f'{shown(schema)}; write for example {{ts = "timestamp[us]", host = "string"}}'
        )
    return SourceGiven(
        where, place, path, given.get("format"), schema, given.get("on"), order, late, follow,
        given.get("peers", "one"),
    )  # fmt: skip


def _paths(value: object, where: Where, folder: Path | None) -> str | list[str]:
    """A path, or several, from where we are; an address has no folder."""
    if folder is None:
        return _text(value, where, '":9000"')
    if isinstance(value, list) and value:
        return [located(_path(one, where, '"a.parquet"'), folder) for one in value]
    return located(_path(value, where, '"calls-*.csv", "-" for standard input'), folder)


def located(path: str, folder: Path) -> str:
    """A path of the job, from where we are."""
    if path == "-" or _ADDRESS.match(path):
        return path
    return str(folder / Path(path).expanduser())


def _order(value: object, where: Where) -> Any:
    example = 'write "sorted", {lateness = "5s"} or {read_ahead = 100}'
    if value == "sorted":
        return "sorted"
    kinds: dict[str, Callable[[Any], Any]] = {
        "lateness": matwin.Lateness, "read_ahead": matwin.ReadAhead, "grid": matwin.GridOrdered,
    }  # fmt: skip
    if not isinstance(value, dict) or len(value) != 1:
        raise where.wrong(f"{shown(value)} is no order; {example}")
    [(name, amount)] = table_of(value, where, tuple(kinds)).items()
    with where.of(name).told():
        return kinds[name](amount)


def _tables(value: object, where: Where, folder: Path) -> dict[str, str | list[str]]:
    return {n: _paths(v, where.of(n), folder) for n, v in _mapping(value, where).items()}


# ── the cut and the options ──────────────────────────────────────────────────────────────────


def _cut(value: object, where: Where) -> Cut:
    given = table_of(value, where, CUT_KEYS)
    ways = [way for way in ("every", "count", "on_change") if way in given]
    if len(ways) != 1:
        said = " and ".join(ways) or "none of every, count and on_change"
        raise where.wrong(f"{said}: it takes one of them; {CUT_EXAMPLE}")
    for name in ("on", "align"):
        if name in given and ways[0] != "every":
            raise where.wrong(f"{name} goes with every, not with {ways[0]}; take it out")
    if ways[0] == "every" and "on" not in given:
        raise where.wrong('on is missing: the column that is cut by; write on = "ts"')
    with where.told():
        if ways[0] == "count":
            return matwin.cut.count(given["count"])
        if ways[0] == "on_change":
            return matwin.cut.on_change(given["on_change"])
        return matwin.cut.every(given["every"], on=given["on"], align=given.get("align", "round"))


def _options(given: Mapping[str, Any], where: Where, folder: Path) -> dict[str, Any]:
    """What `continuous_query` takes under the same name."""
    plain = ("keep", "memory", "page_size", "idle_after")
    found = {name: given[name] for name in plain if name in given}
    for name in ("memory", "page_size"):
        if name in found:
            with where.of(name).told():
                parse_size(found[name])
    if not is_duration(found.get("idle_after", "1s")):
        raise where.of("idle_after").wrong(f"{shown(found['idle_after'])}; {HOW_TO_WRITE}")
    with where.of("idle_after").told():
        nanoseconds(found.get("idle_after", "1s"))
    if given.get("sink_from", "here") != "here":
        raise where.of("sink_from").wrong(
            f'{shown(given["sink_from"])}; write "here", or leave it out'
        )
    found |= {name: given[name] for name in ("sink_from",) if name in given}
    for name in ("sink", "state", "scratch", "trace"):
        if name in given:
            found[name] = located(_path(given[name], where.of(name), f'"{name}"'), folder)
    return found


# ── the query ────────────────────────────────────────────────────────────────────────────────


def _query(value: object, where: Where, names: Sequence[str]) -> tuple[Any, Any]:
    """SQL or a bound join; and the pairs that are asked for."""
    if isinstance(value, str):
        return value, "all"
    given = dict(_mapping(value, where))
    if ("sql" in given) == ("join" in given):
        raise where.wrong('it takes one of the two; write sql = "SELECT …" or join = '
                          f'"{JOINS[0]}"')  # fmt: skip
    if "sql" in given:
        table_of(given, where, ("sql",))
        return _text(given["sql"], where.of("sql"), '"SELECT * FROM a"'), "all"
    join = given.pop("join")
    if join not in JOINS:
        near = did_you_mean(join, JOINS) if isinstance(join, str) else ""
        raise where.of("join").wrong(f"{shown(join)}{near}; choose one of {', '.join(JOINS)}")
    pairs = given.pop("pairs", "all")
    if pairs not in ("all", "new"):
        raise where.of("pairs").wrong(f'{shown(pairs)}; choose "all" or "new"')
    return _bound(join, given, where, names), pairs


def _bound(join: str, given: dict[str, Any], where: Where, names: Sequence[str]) -> Any:
    function = getattr(matwin, join)
    places = ("streams",) if join == "window_join" else ("left", "right")
    _check_arguments(join, function, given, where)
    for place in places:
        if place not in given:
            raise where.wrong(f"{place} is missing; write for example {_PLACES[place]}")
    arguments: list[Any] = []
    for place in places:
        reading = _streams if place == "streams" else _chunks
        arguments.append(reading(given.pop(place), where.of(place), names))
    if "by" in given and not isinstance(given["by"], str | list | dict):
        raise where.of("by").wrong(f'{shown(given["by"])}; write by = "key" or by = ["k", "a:b"]')
    words = {}
    for name, value in given.items():
        with where.of(name).told():
            words[name] = _argument(join, name, value)
    return partial(function, *arguments, **words)


_PLACES = {"left": 'left = "a"', "right": 'right = {stream = "b", last = 1}',
           "streams": 'streams = ["a", "b"]'}  # fmt: skip
_NO_OPTIONS = ("progress", "report", "trace", "scratch", "max_delay", "options")


def _check_arguments(join: str, function: Any, given: dict[str, Any], where: Where) -> None:
    """Refuse what the join does not take, and say what it lacks."""
    own = signature(function).parameters
    more = [name for name in (*own, *JoinOptions.__annotations__) if name not in _NO_OPTIONS]
    known = [*more, "join", "pairs"]
    for name in given:
        if name in FOREIGN and name not in known:
            raise where.wrong(f"{join} has no {name}: {FOREIGN[name].python}")
    table_of(given, where, known)
    for name, parameter in own.items():
        needs = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if needs and name not in given:
            raise where.wrong(f"{name} is missing, which {join} needs")


def _named_chunks(value: object, where: Where, names: Sequence[str]) -> dict[str, Chunks]:
    return {n: _chunks(v, where.of(n), names) for n, v in _mapping(value, where).items()}


def _streams(value: object, where: Where, names: Sequence[str]) -> dict[str, Chunks]:
    if isinstance(value, list):
        value = {_text(name, where, '["a", "b"]'): name for name in value}
    return _named_chunks(value, where, names)


def _chunks(value: object, where: Where, names: Sequence[str]) -> Chunks:
    """``"a"``, or ``{stream = "a", last = 1}``."""
    given: dict[str, Any] = {"stream": value} if isinstance(value, str) else (
        table_of(value, where, ("stream", "last"))
    )  # fmt: skip
    name: Any = given.get("stream")
    if name not in names:
        near = did_you_mean(name, names) if isinstance(name, str) else ""
        raise where.wrong(
            f"{shown(name)} is no stream or table{near}; there are {', '.join(names)}"
        )
    with where.told():
        return matwin.chunks(name, last=given.get("last"))


def _argument(join: str, name: str, value: Any) -> Any:
    """A value of TOML, which has neither pairs nor keys that are pairs, as the join takes it."""
    between = "," if join == "window_join" else ":"
    if name == "windows" and isinstance(value, dict):
        return {_pair(key, between): _limits(limit) for key, limit in value.items()}
    if name in ("on", "where", "orders") and isinstance(value, dict):
        return {_pair(key, between): _limits(limit) for key, limit in value.items()}
    if name == "on" and isinstance(value, str):
        return _pair(value, between)
    if name == "by" and join != "window_join":
        return _pair(value, ":") if isinstance(value, str) else [_pair(v, ":") for v in value]
    return tuple(value) if name == "suffixes" and isinstance(value, list) else value


def _pair(text: Any, between: str) -> Any:
    """``"t:ts"`` is a pair of names."""
    if isinstance(text, list):
        return tuple(text)
    parts = [part.strip() for part in text.split(between)] if isinstance(text, str) else [text]
    return text if len(parts) == 1 else tuple(parts)


def _limits(value: Any) -> Any:
    """``["-10min", "0s"]`` are two limits, ``{then = "5s"}`` is an order in time."""
    if isinstance(value, dict) and list(value) == ["then"]:
        return matwin.then(_limits(value["then"]))
    return tuple(value) if isinstance(value, list) else value


def explained(where: Where, error: MatwinError) -> MatwinError:
    """An error of the library, with the file that asked for it."""
    if not isinstance(error, InputError | BudgetError):
        return error
    message = brief(str(error))
    if message.startswith(where.file):
        if message == str(error):
            return error
    else:
        message = f"{where.file}: {message}"
    told = (
        BudgetError(message, smallest_bytes=error.smallest_bytes)
        if isinstance(error, BudgetError) else type(error)(message)
    )  # fmt: skip
    told.__cause__ = error
    return told
