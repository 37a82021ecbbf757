r"""The words of a window join on the command line.

    a=A.parquet b=B.parquet    streams={"a": "A.parquet", "b": "B.parquet"}
    --time t                   time="t"
    --time t --time b=ts       time={"a": "t", "b": "ts"}
    --window 1h                windows="1h"                        every pair
    --window a,b=5s            windows={("a", "b"): "5s"}
    --window a,b=-2s..5s       windows={("a", "b"): ("-2s", "5s")}      lo <= b - a <= hi
    --then a,b=5s              windows={("a", "b"): then("5s")}         0 <= b - a <= 5s
    --path a,b,c=5s,3s         windows=path(["a", "b", "c"], windows=["5s", "3s"])
    --by obj                   by=["obj"]
    --by a=obj,b=object        by={"a": ["obj"], "b": ["object"]}
    --where a.x,b.x=0.5        where={("a.x", "b.x"): 0.5}              -0.5..0.5 and lo..hi too

A name that has ``=``, ``,`` or a backslash in it gets a backslash before each.  What a window or a
tolerance means is decided by the columns: numbers for numbers, durations for times.  A bare number
for a time is refused, because nobody can see its unit.

Left out: functions in `where`; Python is the place for them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import matwin
from matwin.hints import did_you_mean
from matwin.storage.columns import is_temporal
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.names import listed as all_of

from .window_question import column_of

_STREAMS = "write for example a=A.parquet b=B.parquet"
_WINDOW = "write for example --window 1h, --window a,b=5s or --window a,b=-2s..5s"
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

Schemas = Mapping[str, pa.Schema]


def streams_of(texts: Sequence[str]) -> dict[str, str]:
    """The streams' names and where their rows are."""
    found: dict[str, str] = {}
    for text in texts:
        name, file = cut(text, "=")
        name = plain(name)
        if not file or not name:
            raise InputError(f"{text!r} names no stream and its file; {_STREAMS}")
        if name in found:
            raise InputError(f"{text!r}: there is a stream {name!r} already; {_STREAMS}")
        found[name] = file
    if len(found) < 2:
        raise InputError(f"{list(found)} is one stream, and a join needs two; {_STREAMS}")
    return found


def question_arguments(args: argparse.Namespace, schemas: Schemas) -> dict[str, Any]:
    """The words as arguments of a window join, checked against the columns."""
    time = time_of(args.time, list(schemas))
    _check_times(time, schemas)
    found = {"time": time, "windows": _windows_of(args, schemas, time)}
    if args.by:
        found["by"] = by_of(args.by, list(schemas))
    if args.where:
        found["where"] = [where_of(text, schemas) for text in args.where]
    return found


# ── names ────────────────────────────────────────────────────────────────────────────────────


def cut(text: str, mark: str) -> tuple[str, str | None]:
    """The text before and after the first mark that no backslash hides."""
    match = re.fullmatch(rf"((?:[^\\{mark}]|\\.)*){mark}(.*)", text, re.DOTALL)
    return (match[1], match[2]) if match else (text, None)


def listed(text: str) -> list[str]:
    """The names between commas that no backslash hides."""
    found, rest = [], text
    while True:
        head, tail = cut(rest, ",")
        found.append(plain(head))
        if tail is None:
            return found
        rest = tail


def plain(name: str) -> str:
    """A name without the backslashes that protect it."""
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)


def per_stream(text: str, names: Sequence[str], option: str) -> dict[str, str] | None:
    """``a=this,b=that`` as a mapping; None if no stream is named.

    >>> per_stream("a=obj,b=object", ["a", "b"], "--by")
    {'a': 'obj', 'b': 'object'}
    """
    if cut(text, "=")[1] is None:
        return None
    found: dict[str, str] = {}
    rest: str | None = text
    while rest is not None:
        part, rest = cut(rest, ",")
        name, value = cut(part, "=")
        if plain(name) not in names:
            raise InputError(
                f"{option} {text!r}: {plain(name)!r} is no stream; there are {', '.join(names)}"
            )
        if not value:
            raise InputError(f"{option} {text!r}: what {plain(name)!r} has is missing")
        if plain(name) in found:
            raise InputError(f"{option} {text!r}: it names {plain(name)!r} twice")
        found[plain(name)] = plain(value)
    return found


def time_of(texts: Sequence[str], names: Sequence[str]) -> str | dict[str, str]:
    """The time column of all streams, or of each."""
    common: str | None = None
    own: dict[str, str] = {}
    for text in texts:
        named = per_stream(text, names, "--time")
        if named is None and common is not None:
            raise InputError(
                f"--time {text!r}: {common!r} is the time of all streams already; name the stream, "
                f"such as --time {names[0]}={text}"
            )
        if named is None:
            common = plain(text)
        for name in named or ():
            if name in own:
                raise InputError(f"--time {text!r}: the time of {name!r} was given before")
        own |= named or {}
    if common is not None:
        return {name: own.get(name, common) for name in names} if own else common
    return own


def by_of(texts: Sequence[str], names: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """The keys, under one name or under each stream's own."""
    keys = [per_stream(text, names, "--by") or plain(text) for text in texts]
    if all(isinstance(key, str) for key in keys):
        return [key for key in keys if isinstance(key, str)]
    return {
        name: [key if isinstance(key, str) else _own(key, name, names) for key in keys]
        for name in names
    }


def _own(key: dict[str, str], name: str, names: Sequence[str]) -> str:
    if name not in key:
        shown = ",".join(f"{stream}={key.get(stream, '…')}" for stream in names)
        raise InputError(f"--by: the key of {name!r} is missing; write --by {shown}")
    return key[name]


# ── windows ──────────────────────────────────────────────────────────────────────────────────


def _windows_of(args: argparse.Namespace, schemas: Schemas, time: Any) -> Any:
    columns = time if isinstance(time, dict) else dict.fromkeys(schemas, time)
    is_time = any(
        is_time_column(schemas[name], columns[name]) for name in schemas if name in columns
    )
    if args.both_ways and not args.path:
        raise InputError("--both-ways goes with --path")
    if args.path:
        if args.window or args.then:
            raise InputError("--path says all windows; leave out --window and --then")
        return _path_of(args.path, both_ways=args.both_ways, is_time=is_time)
    if not args.window and not args.then:
        raise InputError(f"no window is given; {_WINDOW}")
    if len(args.window) == 1 and not args.then and cut(args.window[0], "=")[1] is None:
        return value_of("--window", args.window[0], args.window[0], is_time=is_time)
    windows: dict[tuple[str, str], Any] = {}
    for option, texts in (("--window", args.window), ("--then", args.then)):
        for text in texts:
            pair, limit = _pair_of(option, text)
            if pair in windows or pair[::-1] in windows:
                raise InputError(f"{option} {text!r}: the pair has a window already")
            value = limit_of(option, text, limit, is_time=is_time)
            windows[pair] = matwin.then(value) if option == "--then" else value
    return windows


def _pair_of(option: str, text: str) -> tuple[tuple[str, str], str]:
    names, limit = cut(text, "=")
    if limit is None:
        raise InputError(
            f"{option} {text!r}: beside other windows it needs its pair of streams; {_WINDOW}"
        )
    pair = listed(names)
    if len(pair) != 2 or not all(pair):
        example = "write for example --then a,b=5s" if option == "--then" else _WINDOW
        raise InputError(f"{option} {text!r}: {names!r} is no pair of streams; {example}")
    return (pair[0], pair[1]), limit


def _path_of(text: str, *, both_ways: bool, is_time: bool) -> Any:
    names, limits = cut(text, "=")
    if not limits:
        raise InputError(f"--path {text!r}: its windows are missing; write --path a,b,c=5s,3s")
    windows = [value_of("--path", text, limit, is_time=is_time) for limit in limits.split(",")]
    return matwin.path(listed(names), windows=windows, both_ways=both_ways)


def where_of(text: str, schemas: Schemas) -> dict[tuple[str, ...], Any]:
    """A tolerance between columns of two streams."""
    names, limit = cut(text, "=")
    if limit is None:
        raise InputError(f"--where {text!r}: its limit is missing; write --where a.x,b.x=0.5")
    key = tuple(listed(names))
    streams, types = list(schemas), list(schemas.values())
    columns = [column_of(streams, types, name) for name in key]
    is_time = any(is_time_column(types[column.stream], column.name) for column in columns)
    return {key: limit_of("--where", text, limit, is_time=is_time)}


def is_time_column(schema: pa.Schema, name: str) -> bool:
    """Whether a column that is there holds times."""
    at = schema.get_field_index(name)
    return at >= 0 and is_temporal(plain_type(schema.field(at).type))


def limit_of(option: str, text: str, limit: str, *, is_time: bool) -> Any:
    """One value, or the two of ``lo..hi``."""
    lo, between, hi = limit.partition("..")
    if between:
        return value_of(option, text, lo, is_time=is_time), value_of(
            option, text, hi, is_time=is_time
        )
    return value_of(option, text, limit, is_time=is_time)


def _check_times(time: str | dict[str, str], schemas: Schemas) -> None:
    """Refuse a time column that is not there, before its type says what a window means."""
    for stream, schema in schemas.items():
        column = time if isinstance(time, str) else time.get(stream)
        if column is not None and column not in schema.names:
            raise InputError(
                f"--time: {stream}: column {column!r} is not there"
                f"{did_you_mean(column, schema.names)}; the columns are {all_of(schema.names)}"
            )


def value_of(option: str, text: str, value: str, *, is_time: bool) -> Any:
    """A duration for a time, a number for a number."""
    value = value.strip()
    if is_time and value and not _NUMBER.fullmatch(value):
        return value
    if is_time and value and float(value) == 0:
        return 0
    if not is_time and _WHOLE.fullmatch(value):
        return int(value)
    if not is_time and _NUMBER.fullmatch(value):
        return float(value)
    if is_time:
        problem = f"{value!r} has no unit, and its column is a time; write for example {value}s"
        raise InputError(f"{option} {text!r}: {problem if value else 'a limit is missing'}")
    raise InputError(f"{option} {text!r}: {value!r} is no number, and its column is no time")
