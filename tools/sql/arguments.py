"""A planned join as the arguments of the function that runs it.  Pure.

The columns are called ``alias.column`` on both sides.
"""

from __future__ import annotations

from typing import Any

from .nodes import Asof, Attribute, Best, Near, Windowed, columns_of, joined_name, prefix_of
from .recognise import Ref

Arguments = dict[str, Any]


def _pair(left: Ref, right: Ref) -> tuple[str, str]:
    return joined_name(left), joined_name(right)


def _tolerances(attributes: tuple[Attribute, ...]) -> Arguments:
    return {_pair(one.left, one.right): one.tolerance for one in attributes}  # type: ignore[misc]


def _by(keys: tuple[tuple[Ref, Ref], ...]) -> list[tuple[str, str]] | None:
    return [_pair(*pair) for pair in keys] or None


def best_arguments(part: Best) -> Arguments:
    """Those of `matwin.bestmatch_join`."""
    orders = {_pair(one.left, one.right): one.order for one in part.on if one.order is not None}
    return {
        "on": _tolerances(part.on), "by": _by(part.keys), "how": part.how, "orders": orders,
        "where": _tolerances(part.where) or None,
    }  # fmt: skip


def near_arguments(part: Near) -> Arguments:
    """Those of `matwin.epsilon_join`."""
    return {"on": _tolerances(part.on), "by": _by(part.keys), "how": part.how}


def asof_arguments(part: Asof) -> Arguments:
    """Those of `matwin.asof_join`."""
    return {
        "on": _pair(*part.on), "by": _by(part.keys), "how": part.how,
        "direction": part.direction, "allow_exact_matches": not part.is_strict,
    }  # fmt: skip


def window_arguments(part: Windowed) -> Arguments:
    """Those of `matwin.window_join`, but for the streams."""
    names = [name for name, _ in part.streams]
    times = zip(names, part.times, strict=True)
    where: list[dict[tuple[str, ...], Any]] = [
        {(f"{a[0]}.{joined_name(a)}", f"{b[0]}.{joined_name(b)}"): one.tolerance}
        for one in part.near
        for a, b in [(one.left, one.right)]
    ]
    where += [
        {tuple(f"{ref[0]}.{joined_name(ref)}" for ref in refs): function}
        for refs, _, function in part.functions
    ]
    return {
        "time": {name: joined_name((name, time)) for name, time in times},
        "windows": part.windows,
        "by": [tuple(joined_name(ref) for ref in key) for key in part.keys] or None,
        "where": where or None,
    }


def window_columns(part: Windowed) -> dict[str, str]:
    """What a window join calls each column, by the name it has here."""
    firsts = {ref: joined_name(key[0]) for key in part.keys for ref in key}
    found: dict[str, str] = {}
    for name, stream in part.streams:
        for one in columns_of(stream):
            ref = (name, one.name.removeprefix(prefix_of(name)))
            found[one.name] = firsts.get(ref, f"{name}_{one.name}")
    return found
