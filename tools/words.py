r"""The words of a join on the command line: ``--on``, ``--by``, ``--order`` and the options.

    --on t=10min               on={"t": "10min"}
    --on t=-10min..0s          on={"t": ("-10min", "0s")}       lo <= right - left <= hi
    --on t:ts=10min            on={("t", "ts"): "10min"}        names that differ
    --on x                     on={"x": None}                   without a limit
    --by room:raum             by=[("room", "raum")]
    --order t=youngest         orders={"t": "youngest"}

A name that has ``=``, ``:`` or a backslash in it gets a backslash before each.  What a tolerance
means is decided by the column: numbers for numbers, durations for times.  A bare number for a time
is refused, because nobody can see its unit.

Left out: orders that are functions; Python is the place for them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import matwin
from matwin.file import File
from matwin.files import files_source
from matwin.formats import format_named
from matwin.orders import order_of
from matwin.question import Question
from matwin.sources import Source, source_of
from matwin.storage.columns import is_temporal
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError

from .verify_question import wanted_of

Names = str | tuple[str, str]

OPTIONS = (
    "memory", "page_size", "materialize", "schedule", "scratch", "threads", "trace",
    "max_output_rows",
)  # fmt: skip
_EXAMPLE = "write for example --on t=10min, --on x=0.5, --on t=-10min..0s or --on t:ts=10min"
TOLERANCE_EXAMPLE = "write for example --tolerance 5min or --tolerance 0.5"
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def question_of(left: pa.Schema, right: pa.Schema, *, best: bool, **arguments: Any) -> Question:
    """The question of a join's arguments."""
    return wanted_of(join_of(best=best), left, right, arguments).question


def join_of(*, best: bool) -> Callable[..., matwin.Result]:
    """The join that finds the best pairs, or all."""
    return matwin.bestmatch_join if best else matwin.epsilon_join


@dataclass(frozen=True)
class Asked:
    """A join as it was asked for: its sources, question, arguments and options."""

    left: Source
    right: Source
    question: Question
    arguments: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, args: argparse.Namespace) -> Asked:
        """What the words mean, checked against the columns of both files."""
        left, right = inputs_of(args)
        arguments = arguments_of(args, left.schema, right.schema)
        question = question_of(left.schema, right.schema, best=args.pairs == "best", **arguments)
        return cls(left, right, question, arguments, options_given(args))

    @property
    def join(self) -> Callable[..., matwin.Result]:
        """Which join it is."""
        return join_of(best=self.question.best)

    def run(self, **more: Any) -> matwin.Result:
        """Start the join."""
        return self.join(self.left, self.right, **self.arguments, **self.options, **more)


def inputs_of(args: argparse.Namespace) -> tuple[Source, Source]:
    """The sources of both sides."""
    usual = usual_format(args)
    return input_of(args.left, "left", usual), input_of(args.right, "right", usual)


def usual_format(args: argparse.Namespace) -> type[File] | None:
    """The format of files whose names don't say it."""
    return None if args.input_format is None else format_named(args.input_format)


def input_of(path: str, name: str, usual: type[File] | None) -> Source:
    """The source of a file, folder or pattern."""
    return source_of(path, name) if usual is None else files_source(path, name, usual=usual)


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were written."""
    given = {name: getattr(args, name) for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def outputs_of(args: argparse.Namespace) -> dict[str, str | None]:
    """The files that a command writes, by the option that names them."""
    return {"-o": getattr(args, "output", None), "--trace": args.trace}


def arguments_of(args: argparse.Namespace, left: pa.Schema, right: pa.Schema) -> dict[str, Any]:
    """The words as keyword arguments of a join."""
    on = on_of(args.on, left, right)
    found: dict[str, Any] = {
        "on": on,
        "by": by_of(args.by, left),
        "how": args.how or ("left" if args.pairs == "best" else "inner"),
        "distances": args.distances,
    }
    if args.suffixes is not None:
        found["suffixes"] = suffixes_of(args.suffixes)
    if args.pairs == "best":
        found["orders"] = _orders_of(args.order or (), on)
        found["keep_unmatched"] = args.keep_unmatched
    elif args.order or args.keep_unmatched:
        word = "--order" if args.order else "--keep-unmatched"
        raise InputError(f"{word} goes with --pairs best; --pairs all has --how left, right, full")
    return found


def on_of(texts: list[str], left: pa.Schema, right: pa.Schema) -> dict[Names, Any]:
    """The join attributes with their tolerances, in the order in which they were given."""
    found: dict[Names, Any] = {}
    for text in texts:
        names, limit = split(text, "=")
        _check_mark(text, names, limit, left, right)
        key = names_of(names, "--on", _EXAMPLE)
        if key in found:
            raise _wrong(text, "the column was given before")
        ours, theirs = (key, key) if isinstance(key, str) else key
        is_time = _is_time(left, ours) or _is_time(right, theirs)
        if left.get_field_index(ours) < 0 or right.get_field_index(theirs) < 0:
            is_time = not _is_numeric(limit or "")  # the join will say which column is missing
        found[key] = None if limit is None else _limit_of(text, limit, is_time=is_time)
    return found


def _check_mark(
    text: str, names: str, limit: str | None, left: pa.Schema, right: pa.Schema
) -> None:
    """Refuse limits behind another mark than =, and several columns in one word."""
    if limit is not None:
        if re.search(r",[^,]*=", limit):
            apart = text.replace(",", " --on ")
            raise InputError(f"--on {text!r}: each column has an --on of its own: --on {apart}")
        return
    match = re.fullmatch(r"(.+?)(:|<=?|>=?)(.+)", names)
    if match is None or names in left.names:
        return
    name, mark, rest = match.groups()
    if name in left.names and (mark != ":" or rest not in right.names) and re.match(r"\d", rest):
        raise InputError(f"--on {text!r}: a limit comes after =, as in --on {name}={rest}")


def by_of(texts: list[str] | None, left: pa.Schema) -> list[Names]:
    """The equality keys."""
    for text in texts or ():
        parts = re.split(r"[,=]", text)
        if len(parts) > 1 and text not in left.names and all(parts) and parts[0] in left.names:
            mend = ":".join(parts) if "=" in text else " --by ".join(parts)
            raise InputError(
                f"--by {text!r}: each key has a --by of its own, with : between names that "
                f"differ; write --by {mend}"
            )
    return [names_of(text, "--by", "--by room or --by room:raum") for text in texts or ()]


def tolerance_of(text: str, on: Names, left: pa.Schema, right: pa.Schema) -> Any:
    """The tolerance of an as-of join, by the type of its column."""
    ours, theirs = (on, on) if isinstance(on, str) else on
    is_time = _is_time(left, ours) or _is_time(right, theirs)
    if left.get_field_index(ours) < 0 or right.get_field_index(theirs) < 0:
        return text  # the join will say which column is missing
    return _value_of("--tolerance", text, is_time=is_time, example=TOLERANCE_EXAMPLE)


def _is_time(schema: pa.Schema, name: str) -> bool:
    at = schema.get_field_index(name)
    return at >= 0 and is_temporal(plain_type(schema.field(at).type))


def _is_numeric(limit: str) -> bool:
    return all(_NUMBER.fullmatch(part.strip()) for part in limit.split(".."))


def _limit_of(text: str, limit: str, *, is_time: bool) -> Any:
    lo, between, hi = limit.partition("..")
    where = f"--on {text!r}"
    if between:
        return _value_of(where, lo, is_time=is_time), _value_of(where, hi, is_time=is_time)
    return _value_of(where, limit, is_time=is_time)


def _value_of(where: str, value: str, *, is_time: bool, example: str = _EXAMPLE) -> Any:
    value = value.strip()
    if not is_time:
        if _WHOLE.fullmatch(value):
            return int(value)
        if _NUMBER.fullmatch(value):
            return float(value)
        raise InputError(f"{where}: {value!r} is no number, and its column is no time; {example}")
    if _NUMBER.fullmatch(value):
        if float(value) == 0:
            return 0
        raise InputError(f"{where}: {value!r} has no unit, and its column is a time; {example}")
    if not value:
        raise InputError(f"{where}: a limit is missing; {example}")
    return value


def _wrong(text: str, problem: str) -> InputError:
    return InputError(f"--on {text!r}: {problem}; {_EXAMPLE}")


def names_of(text: str, option: str, example: str) -> Names:
    """A column's name, or the names on the left and on the right."""
    left, right = split(text, ":")
    names = [_unescaped(name) for name in (left, right) if name is not None]
    if not all(names):
        raise InputError(f"{option} {text!r}: a column's name is missing; {example}")
    return names[0] if len(names) == 1 or names[0] == names[1] else (names[0], names[1])


def split(text: str, mark: str) -> tuple[str, str | None]:
    """The text before and after the first mark that no backslash hides."""
    match = re.fullmatch(rf"((?:[^\\{mark}]|\\.)*){mark}(.*)", text, re.DOTALL)
    return (match[1], match[2]) if match else (text, None)


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)


def _orders_of(texts: list[str] | tuple[()], on: dict[Names, Any]) -> dict[Names, Any]:
    known = {key if isinstance(key, str) else key[0]: key for key in on}
    found: dict[Names, Any] = {}
    example = "write for example --order t=youngest"
    for text in texts:
        names, word = split(text, "=")
        name = _unescaped(split(names, ":")[0])
        if word is None:
            raise InputError(f"--order {text!r}: the order is missing; {example}")
        if name not in known:
            raise InputError(f"--order {text!r}: --on does not name {name!r}; it has {list(known)}")
        found[known[name]] = order_of(word, name)
    return found


def suffixes_of(text: str) -> tuple[str, str]:
    """The suffixes of the left and of the right."""
    parts = text.split(",")
    if len(parts) != 2:
        raise InputError(f"--suffixes {text!r}: write two, such as --suffixes _left,_right")
    return parts[0], parts[1]
