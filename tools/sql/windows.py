"""The window clause: which streams are joined, by which windows, keys and predicates.  Pure.

    window (a, b) = '5s' and dwindow (b, c) = '3s'      pairs; dwindow: the second comes after
    window = '1h'                                       every pair of streams
    window (a.seen, b.at) = 5                           with the columns that hold the time
    dwindow (a, b) = w1 and dwindow (b, c) = w2
      or dwindow (c, b) = w2 and dwindow (b, a) = w1    a path, in both directions

A length is an interval, text, a number, a range (lo, hi) of second - first, or a name that stands
for one of these.  Without a column, a stream's time is what `matwin.stream(on=...)` declares, its
only column of times, or a column called ts, t, time or timestamp.

Equalities that reach all streams are keys; other distances between two streams and functions of the
caller's are predicates; all else filters the joined rows, which means the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from matwin.operators.wjoin.constraints import path, then
from matwin.storage.columns import is_numeric
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .amounts import Amount, Range, amount_of, tolerance
from .catalog import Catalog
from .conditions import Condition, compared_as, is_alike, is_comparable, is_plain_key
from .dialect import Window, Windows
from .errors import place_of, wrong
from .names import Scope
from .nodes import Attribute
from .recognise import Ref
from .tree import Branch, Leaf

TIMES = ("ts", "t", "time", "timestamp", "t_s")
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WindowData:
    """What a window join is made of."""

    times: tuple[str, ...]
    windows: Any
    shown: tuple[str, ...]
    keys: tuple[tuple[Ref, ...], ...]
    near: tuple[Attribute, ...]
    functions: tuple[tuple[tuple[Ref, ...], str, Callable[..., Any]], ...]


class WindowChooser:
    """Makes the window join of a select."""

    def __init__(
        self, text: str, scope: Scope, catalog: Catalog, windows: Windows,
        sources: dict[str, object],
    ) -> None:  # fmt: skip
        self.text, self.scope, self.catalog = text, scope, catalog
        self.windows, self.sources = windows, sources
        self._times: dict[str, str] = {}

    def streams(self) -> list[str]:
        """The inputs that have windows, in the order of the from clause."""
        named = [alias for one in self._all() for alias in self._pair(one) or ()]
        every = any(not one.args.get("streams") for one in self._all())
        if len(self.scope.inputs) < 2:
            raise wrong(self.text, "a window joins at least two streams", self._all()[0])
        return [one.alias for one in self.scope.inputs if every or one.alias in named]

    def _all(self) -> list[Window]:
        return [one for group in self.windows.expressions for one in group.expressions]

    def branch(self, leaves: list[Leaf], conditions: list[Condition]) -> Branch:
        """The window join of these streams."""
        names = [leaf.inputs[0].alias for leaf in leaves]
        windows, shown = self._windows(names)
        times = tuple(self._time(alias) for alias in names)
        keys = self._keys(names, conditions)
        near = self._near(names, conditions)
        functions = self._functions(names, conditions)
        data = WindowData(times, windows, tuple(shown), keys, near, functions)
        every = tuple(range(len(leaves)))
        return Branch("window", [*leaves], every, data, self._all()[0])

    # ── windows ──────────────────────────────────────────────────────────────────────────────

    def _windows(self, names: list[str]) -> tuple[Any, list[str]]:
        groups = [group.expressions for group in self.windows.expressions]
        if len(groups) > 1:
            return self._both_ways(names, groups)
        bare = [one for one in groups[0] if not one.args.get("streams")]
        if bare:
            if len(groups[0]) > 1:
                message = "window = … is for every pair; other windows would contradict it"
                raise wrong(self.text, message, groups[0][1])
            if bare[0].args.get("directed"):
                raise wrong(self.text, "a directed window needs its streams: dwindow (a, b) = …",
                            bare[0])  # fmt: skip
            length = self._length(bare[0])
            return length, [f"every pair ±{_shown(length)}"]
        found: dict[Pair, Any] = {}
        shown = []
        for one in groups[0]:
            pair = self._pair(one)
            assert pair is not None
            self._check_once(pair, found, one)
            length = self._length(one)
            is_directed = one.args.get("directed")
            found[pair] = then(length) if is_directed else length
            shown.append(_shown_window(pair, length, is_directed=bool(is_directed)))
        return found, shown

    def _check_once(self, pair: Pair, found: dict[Pair, Any], one: Window) -> None:
        if pair in found or (pair[1], pair[0]) in found:
            message = (
                f"{pair[0]} and {pair[1]} have a window already, which this one contradicts or "
                "repeats; give the pair one, or a range (lo, hi)"
            )
            raise wrong(self.text, message, one)

    def _both_ways(self, names: list[str], groups: list[list[Window]]) -> tuple[Any, list[str]]:
        """A path and its reverse: the one alternative that a window join has."""
        paths = [self._path(group) for group in groups]
        ways = [one for one in paths if one is not None]
        is_reverse = (
            len(ways) == 2 == len(groups)
            and ways[0][0] == ways[1][0][::-1]
            and ways[0][1] == ways[1][1][::-1]
        )
        if not is_reverse or sorted(ways[0][0]) != sorted(names):
            message = (
                "`or` between windows is for a path and its reverse: dwindow (a, b) = w1 and "
                "dwindow (b, c) = w2 or dwindow (c, b) = w2 and dwindow (b, a) = w1; for anything "
                "else write a union of two selects"
            )
            raise wrong(self.text, message, groups[1][0])
        order, lengths = ways[0]
        shown = [f"{' → '.join(order)} or back, {', '.join(map(_shown, lengths))}"]
        return path(order, windows=lengths, both_ways=True), shown

    def _path(self, group: list[Window]) -> tuple[list[str], list[Any]] | None:
        pairs = [self._pair(one) for one in group]
        if not all(one.args.get("directed") for one in group) or None in pairs:
            return None
        steps = {pair[0]: (pair[1], self._length(one))
                 for pair, one in zip(pairs, group, strict=True) if pair is not None}  # fmt: skip
        starts = set(steps) - {after for after, _ in steps.values()}
        if len(steps) != len(group) or len(starts) != 1:
            return None
        order, lengths = [starts.pop()], []
        while order[-1] in steps:
            after, length = steps[order[-1]]
            order.append(after)
            lengths.append(length)
        return order, lengths

    def _pair(self, one: Window) -> Pair | None:
        given = one.args.get("streams")
        if not given:
            return None
        if len(given) != 2:
            raise wrong(self.text, "a window is between two streams: window (a, b) = …", one)
        first, second = (self._stream(column, one) for column in given)
        if first == second:
            raise wrong(self.text, f"{first} can't have a window with itself", one)
        return first, second

    def _stream(self, column: exp.Expr, one: Window) -> str:
        """The stream that is named here, with its time column or without."""
        if not isinstance(column, exp.Column):
            raise wrong(self.text, "name two streams: window (a, b) = …", one)
        parts = [part.name for part in column.parts]
        found = self.scope.input_of(parts[0])
        if found is None:
            raise self.scope.unknown(exp.Column(this=column.parts[-1], table=column.parts[0]))
        if len(parts) > 1:
            ref = self.scope.resolve(column)
            assert ref is not None
            before = self._times.setdefault(found.alias, ref[1])
            if before != ref[1]:
                message = f"the time of {found.alias} is {before} in another window"
                raise wrong(self.text, message, column)
        return found.alias

    def _length(self, one: Window) -> Any:
        """The length of a window as the join takes it."""
        node = one.this
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Tuple) and len(node.expressions) == 2:
            lo, hi = (amount_of(end) for end in node.expressions)
            if lo is not None and hi is not None:
                return _plain(lo), _plain(hi)
        found = amount_of(node)
        if found is not None:
            return _plain(found)
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            length = self.catalog.length(node.name)
            if length is not None:
                return length
            message = (
                f"{node.name!r} stands for no length; give it by keyword, "
                f"matwin.sql(..., {node.name}='5s'), or write the length here"
            )
            raise wrong(self.text, message, node)
        message = "a window's length is a text such as '5s', an interval or a number"
        raise wrong(self.text, message, one if place_of(node) is None else node)

    def _time(self, alias: str) -> str:
        """The column that holds a stream's time."""
        if alias in self._times:
            return self._times[alias]
        source = self.sources.get(alias)
        if isinstance(source, Stream) and source.on is not None:
            return str(source.on)
        found = self.scope.input_of(alias)
        assert found is not None
        clocks = [one.name for one in found.schema if pa.types.is_timestamp(one.type)]
        if len(clocks) == 1:
            return str(clocks[0])
        named = [found.names[name] for name in TIMES if name in found.names]
        numbers = [name for name in named if is_numeric(plain_type(found.field(name).type))]
        if numbers:
            return numbers[0]
        message = (
            f"it is not clear which column holds the time of {alias}; write window ({alias}.ts, …) "
            f"= …, or declare it: matwin.stream(…, on='ts')"
        )
        raise wrong(self.text, message, found.item)

    # ── conditions ───────────────────────────────────────────────────────────────────────────

    def _keys(self, names: list[str], conditions: list[Condition]) -> tuple[tuple[Ref, ...], ...]:
        """Equalities that connect one column of every stream."""
        equal = [one for one in conditions if self._is_equality(one, names)]
        keys = []
        for group in _groups([(one.distance.left, one.distance.right) for one in equal
                              if one.distance is not None]):  # fmt: skip
            columns = {alias: [ref for ref in group if ref[0] == alias] for alias in names}
            if not all(len(refs) == 1 for refs in columns.values()):
                continue
            if any(refs[0][1] == self._times.get(alias) for alias, refs in columns.items()):
                continue
            keys.append(tuple(columns[alias][0] for alias in names))
            for one in equal:
                if one.distance is not None and one.distance.left in group:
                    one.outcome = "key"
        return tuple(keys)

    def _is_equality(self, one: Condition, names: list[str]) -> bool:
        found = one.distance
        if found is None or not found.is_key or one.outcome is not None:
            return False
        if found.left[0] not in names or found.right[0] not in names:
            return False
        return is_plain_key(self.scope.field(found.left), self.scope.field(found.right))

    def _near(self, names: list[str], conditions: list[Condition]) -> tuple[Attribute, ...]:
        """Other distances between two streams."""
        limits: dict[tuple[Ref, Ref], Range] = {}
        users: dict[tuple[Ref, Ref], list[Condition]] = {}
        for one in conditions:
            found = one.distance
            if (
                found is None
                or one.outcome is not None
                or not {found.left[0], found.right[0]} <= set(names)
            ):
                continue
            fields = self.scope.field(found.left), self.scope.field(found.right)
            if not (is_comparable(found.limits, *fields) and is_alike(found, *fields)):
                continue
            pair, its = (found.left, found.right), found.limits
            if (pair[1], pair[0]) in limits:
                pair, its = (pair[1], pair[0]), its.swapped()
            limits[pair] = limits[pair].meet(its) if pair in limits else its
            users.setdefault(pair, []).append(one)
        made = []
        for pair, its in limits.items():
            attribute = self._predicate(pair, its)
            if attribute is not None:
                made.append(attribute)
                for one in users[pair]:
                    one.outcome = "tolerance"
        return tuple(made)

    def _predicate(self, pair: tuple[Ref, Ref], limits: Range) -> Attribute | None:
        common = compared_as(*(self.scope.field(ref) for ref in pair))
        if common is None or not limits.is_bounded or limits.is_empty:
            return None
        try:
            found = tolerance(limits, common)
        except InputError:
            return None
        is_plain = isinstance(found, int | float | Decimal | str | tuple)
        return Attribute(*pair, limits, found) if is_plain else None

    def _functions(
        self, names: list[str], conditions: list[Condition]
    ) -> tuple[tuple[tuple[Ref, ...], str, Callable[..., Any]], ...]:
        """Functions that the caller has given, of columns of two streams."""
        made = []
        for one in conditions:
            node = one.node
            function = self.catalog.function(node.name) if isinstance(node, exp.Anonymous) else None
            if function is None or one.outcome is not None:
                continue
            refs = [self.scope.resolve(column) for column in node.expressions
                    if isinstance(column, exp.Column)]  # fmt: skip
            known = [ref for ref in refs if ref is not None]
            aliases = {ref[0] for ref in known}
            if (
                len(known) != len(node.expressions)
                or len(aliases) != 2
                or not aliases <= set(names)
            ):
                message = f"{node.name} is a function of columns of two of the streams here"
                raise wrong(self.text, message, node)
            made.append((tuple(known), node.name, function))
            one.outcome = "predicate"
        return tuple(made)


def _plain(amount: Amount) -> Any:
    """An amount as the joins take it."""
    if amount.is_time:
        return str(amount)
    value = amount.value
    return int(value) if value.denominator == 1 else float(value)


def _shown(length: Any) -> str:
    return " to ".join(map(str, length)) if isinstance(length, tuple) else str(length)


def _shown_window(pair: Pair, length: Any, *, is_directed: bool) -> str:
    if is_directed:
        return f"{pair[1]} up to {_shown(length)} after {pair[0]}"
    if isinstance(length, tuple):
        return f"{pair[1]} - {pair[0]}: {_shown(length)}"
    return f"{pair[0]}, {pair[1]} ±{_shown(length)}"


def _groups(pairs: list[tuple[Ref, Ref]]) -> list[set[Ref]]:
    """Columns that are equal to each other."""
    groups: list[set[Ref]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        merged = set(pair).union(*touched)
        groups = [group for group in groups if not group & merged] + [merged]
    return groups
