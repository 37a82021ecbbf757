"""The streams of `matwin window-join`: files that are complete, and lines that still come.

    a=A.parquet       a source like any other
    b=B.jsonl         JSON lines, read to the end; with --follow a live stream
    c=-               JSON lines on standard input, likewise

With ``--follow`` each stream of JSON lines becomes a `matwin.stream`: sorted, or late by at most
what ``--lateness`` says.  Its columns come from ``--schema`` or from its first lines, which are
waited for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import matwin
from matwin.file import File
from matwin.files import files_source
from matwin.formats import JsonLines, has_format
from matwin.growing import STDIN
from matwin.jsonl import SUFFIXES, declared_schema
from matwin.sources import Source, source_of
from matwin.storage.errors import InputError

from .follow import Following
from .window_words import cut, is_time_column, per_stream, plain, time_of, value_of
from .words import input_of, usual_format


def is_json(path: str, usual: type[File] | None = None) -> bool:
    """Whether a stream is read as JSON lines; `usual` is the format where its name is silent."""
    if usual is not None and not has_format(path):
        return usual is JsonLines
    return path == STDIN or path.lower().endswith(SUFFIXES)


def sources_of(
    args: argparse.Namespace, files: dict[str, str], following: Following
) -> dict[str, Source]:
    """The source of each stream; what has to be waited for is opened last."""
    usual = usual_format(args)
    schemas = _schemas(args.schema, files, usual)
    live = {n: p for n, p in files.items() if is_json(p, usual) and (args.follow or p == STDIN)}
    found: dict[str, Source] = {}
    for name, path in files.items():
        if name not in live and is_json(path, usual):
            found[name] = files_source(path, name, schemas.get(name), usual)
        elif name not in live:
            found[name] = input_of(path, name, usual)
    orders = _orders(args, list(files), list(live))
    for name, take in following.takes(live, args.stream_field).items():
        schema = schemas.get(name)
        if args.follow:
            late = args.late or "error"
            found[name] = following.stream(name, take, schema, order=orders[name], late=late)
        else:
            found[name] = source_of(following.reader(name, take, schema), name)
    return {name: found[name] for name in files}


def _schemas(
    texts: list[str], files: dict[str, str], usual: type[File] | None
) -> dict[str, pa.Schema]:
    """The columns that are declared."""
    found: dict[str, pa.Schema] = {}
    for text in texts:
        option = f"--schema {text!r}"
        first, columns = cut(text, "=")
        name = plain(first)
        if columns is None or name not in files:
            raise InputError(f"{option}: name its stream, such as --schema a=t:timestamp[us]")
        if not is_json(files[name], usual):
            raise InputError(f"{option}: {name!r} is no JSON lines, and its file has types")
        if name in found:
            raise InputError(f"{option}: the columns of {name!r} were given before")
        found[name] = declared_schema(columns, option)
    return found


def _orders(
    args: argparse.Namespace, names: list[str], live: list[str]
) -> dict[str, Callable[[pa.Schema], Any]]:
    """What is promised of each live stream's order, once its columns are known."""
    times = time_of(args.time, names)
    texts: dict[str, str] = {}
    for given in args.lateness:
        named = per_stream(given, live, "--lateness")
        texts = texts | named if named else dict.fromkeys(live, given) | texts
    return {
        name: _order(texts.get(name), times if isinstance(times, str) else times.get(name, ""))
        for name in live
    }


def _order(lateness: str | None, column: str) -> Callable[[pa.Schema], Any]:
    def order(schema: pa.Schema) -> Any:
        if lateness is None:
            return "sorted"
        is_time = is_time_column(schema, column)
        return matwin.Lateness(value_of("--lateness", lateness, lateness, is_time=is_time))

    return order
