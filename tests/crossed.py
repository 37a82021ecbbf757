"""Joins with all their options, and what has to come out of them; `routes.py` says where they run.

    asked = crossed(seed)      tables and a join of them with every option that it may have
    asked.expected             by plain loops over Python's numbers, pair by pair
    asked.check(found, seed)   the same bag, and the order where one was asked for

Values repeat, so that matches tie; rows are few, and where they are wide a page holds three.
A case is a function of its seed alone, and knows nothing of the way in which it will be run: so
whatever goes with an option is tried in every way that there is.

`trials.py` draws columns, tolerances and keys; nothing here asks the product what they mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
from independent import is_comparable, is_same
from trials import Kind, column_of, keys_of, kind_of, limits_of, tuples_trial, values_of, written

import matwin

Pair = tuple[int, int]

# ── what is asked ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Near:
    """An attribute: both columns, which differences are eligible, and who is better."""

    left: list[Any]
    right: list[Any]
    lo: Any
    hi: Any
    is_open: bool = False
    is_nonzero: bool = False
    order: str = "distance"
    function: Callable[..., Any] | None = None

    def admits(self, i: int, j: int) -> bool:
        """Whether the values of a pair are within the bounds."""
        ours, theirs = self.left[i], self.right[j]
        if not (is_comparable(ours) and is_comparable(theirs)):
            return False
        if self.is_nonzero and ours == theirs:
            return False
        apart = theirs - ours
        if self.is_open:
            return (self.lo is None or self.lo < apart) and (self.hi is None or apart < self.hi)
        return (self.lo is None or self.lo <= apart) and (self.hi is None or apart <= self.hi)

    def profile(self, i: int, j: int) -> Any:
        """What of a pair is compared: a number, the smaller the better, or both values."""
        ours, theirs = self.left[i], self.right[j]
        if self.order == "indifferent":
            return 0
        if self.order == "youngest":
            return -max(ours, theirs)
        if self.order == "minimize":
            assert self.function is not None
            return self.function(ours, theirs)
        return (ours, theirs) if self.order == "partial" else abs(theirs - ours)

    def is_as_good(self, one: Any, other: Any) -> bool:
        """Whether a pair is at least as good as another, by their profiles."""
        if self.order == "partial":
            assert self.function is not None
            return self.function(one, other) is True
        return bool(one <= other)


def total(a: Any, b: Any) -> Any:
    """A cost of two numbers."""
    return 2 * a - b


def same_side(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool | None:
    """A partial order: pairs on different sides can't be compared."""
    ahead, behind = one[1] - one[0], other[1] - other[0]
    if (ahead < 0) != (behind < 0):
        return None
    return bool(abs(ahead) <= abs(behind))


@dataclass
class Crossed:
    """A join: which function, its tables and arguments, and what they mean."""

    join: str
    tables: dict[str, pa.Table]
    arguments: dict[str, Any]
    expected: Counter[tuple[Any, ...]]
    places: dict[str, list[Any]]
    """The order attribute of each table."""
    kind: Kind | None
    may_stream: bool
    is_sorted: bool
    is_ordered: bool = False
    measured: list[str] = field(default_factory=list)

    def run(self, sources: dict[str, Any], **options: Any) -> pa.Table:
        """What the product finds."""
        function = getattr(matwin, self.join)
        if self.join == "window_join":
            return function(sources, **self.arguments, **options).read_all()
        return function(*sources.values(), **self.arguments, **options).read_all()

    def check(self, found: pa.Table, seed: int) -> None:
        """Compare what was found with what has to come out."""
        names = {n: i for n in self.tables if (i := self._id(n)) in found.column_names}
        columns = [found[i].to_pylist() for i in names.values()]
        columns += [found[name].to_pylist() for name in self.measured]
        rows = Counter(zip(*columns, strict=True))
        assert rows == self.expected, (seed, _differences(rows, self.expected))
        if self.is_ordered:
            lefts = [math.inf if row is None else row for row in columns[0]]
            assert lefts == sorted(lefts), (seed, lefts)
        for name, number in names.items():  # the other columns are those of the same row
            text = found[number.replace("_id", "_text")].to_pylist()
            for row, told in zip(found[number].to_pylist(), text, strict=True):
                assert (told is None) if row is None else told.rstrip(".").endswith(f" {row}"), (
                    seed, name, row, told,
                )  # fmt: skip

    def _id(self, name: str) -> str:
        return f"{name}_row_id" if self.join == "window_join" else f"{name}_id"


def _differences(found: Counter[Any], wanted: Counter[Any]) -> str:
    more, less = found - wanted, wanted - found
    return f"too many: {dict(more)}; missing: {dict(less)}"


def crossed(seed: int) -> Crossed:
    """A join of two sides or more."""
    chance = Random(f"crossed {seed}")
    kind = chance.choice(["best", "best", "best", "asof", "asof", "epsilon", "window"])
    if kind == "window":
        return _window(seed)
    return _Drawn(chance, kind).made()


def _window(seed: int) -> Crossed:
    trial = tuples_trial(seed)
    return Crossed(
        "window_join",
        trial.tables,
        dict(trial.arguments),
        trial.asked.answer(),
        trial.order,
        None,
        True,
        False,
    )


class _Drawn:
    """A join of two sides as it is drawn."""

    def __init__(self, chance: Random, join: str) -> None:
        self.chance = chance
        self.join = join
        most = chance.choice([6, 14, 14, 14, 30, 30, 30, 70])
        self.is_large = most == 70
        """Whether rows take more pages than a small budget has frames."""
        self.sizes = [chance.choice([0, 1, most // 2, *[most] * 9]) for _ in range(2)]
        self.columns: list[dict[str, pa.Array]] = [{}, {}]
        self.near: list[Near] = []
        self.names: list[Any] = []
        self.kinds: list[Kind] = []
        self.keys: list[tuple[list[Any], list[Any]]] = []
        self.is_sorted = chance.random() < 0.5

    # ── columns ──────────────────────────────────────────────────────────────────────────────

    def made(self) -> Crossed:
        """The join."""
        chance = self.chance
        on, orders = self._attributes()
        by = self._keys()
        arguments: dict[str, Any] = {"by": by}
        if self.join == "asof":
            arguments |= self._asof()
            expected = self._nearest(arguments)
        else:
            arguments |= {"on": on, **self._where()}
            arguments["how"] = chance.choice(
                ["inner", "left", "right", "full"]
                if self.join == "best" else ["inner", "left", "right", "full", "semi", "anti"]
            )  # fmt: skip
            if self.join == "best":
                arguments |= {"orders": orders or None, **self._best_options(arguments["how"])}
            expected = self._pairs(arguments)
        measured = self._measured(arguments, expected)
        expected = Counter(measured[1])
        is_ordered = arguments.pop("is_ordered")
        arguments["suffixes"] = chance.choice([("_left", "_right"), ("", "_other"), ("_l", "")])
        first = self.near[0]
        has_limits = first.lo is not None and first.hi is not None
        if self.join == "asof":
            has_limits = arguments["tolerance"] is not None
        return Crossed(
            {"best": "bestmatch_join", "asof": "asof_join", "epsilon": "epsilon_join"}[self.join],
            self._tables(), arguments, expected,
            {"left": first.left, "right": first.right}, self.kinds[0], has_limits, self.is_sorted,
            is_ordered, measured[0],
        )  # fmt: skip

    def _tables(self) -> dict[str, pa.Table]:
        filling = "." * (1200 if self.is_large else self.chance.choice([0, 300, 1200]))
        tables = {}
        for side, name in enumerate(("left", "right")):
            rows = self.sizes[side]
            texts = [f"{name} {row}{filling}" for row in range(rows)]
            payload = {f"{name}_id": pa.array(range(rows), pa.int64()),
                       f"{name}_text": pa.array(texts, pa.string()),
                       "both": pa.array([None] * rows, pa.string())}  # fmt: skip
            tables[name] = pa.table({**self.columns[side], **payload})
        return tables

    def _values(self, *, is_first: bool = False) -> tuple[Kind, list[list[Any]]]:
        """A kind of numbers and a column for each side: mostly few values, which repeat."""
        chance = self.chance
        if chance.random() < 0.6:
            types = (chance.choice([pa.int64(), pa.int64(), pa.float64()]),) * 2
            is_float = types[0] == pa.float64()
            kind = Kind(types, (1, 1), -100, 100, is_float=is_float)
            widest = chance.choice([0, 1, 3, 20])
            step = chance.choice([0.5, 1.0, 0.25]) if is_float else 1

            def value() -> Any:
                return None if chance.random() < 0.03 else chance.randint(-widest, widest) * step

            columns = [[value() for _ in range(size)] for size in self.sizes]
        else:
            kind = kind_of(chance, 2)
            columns = values_of(chance, self.sizes, kind)
            if chance.random() < 0.5:
                pools = [chance.sample(c, min(len(c), chance.choice([1, 2, 4]))) for c in columns]
                columns = [[chance.choice(pool) for _ in c]
                           for pool, c in zip(pools, columns, strict=True)]  # fmt: skip
        if is_first and self.is_sorted:
            columns = [sorted(c, key=lambda v: (not _has_place(v), v if _has_place(v) else 0))
                       for c in columns]  # fmt: skip
        return kind, columns

    def _attributes(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        chance = self.chance
        on: dict[Any, Any] = {}
        orders: dict[Any, Any] = {}
        count = 1 if self.join == "asof" else chance.choice([1, 1, 2, 2, 3])
        for at, name in enumerate("txy"[:count]):
            kind, (left, right) = self._values(is_first=at == 0)
            lo, hi, tolerance, is_open, is_nonzero = self._tolerance(kind, left, right)
            called: Any = name
            if chance.random() < 0.2:
                called = (name, f"{name}_other")
            order, function, word = self._order(kind)
            if self.join != "best":
                order, function, word = "distance", None, None
            if word is not None:
                orders[called] = word
            on[called] = tolerance
            self.names.append(called)
            self.kinds.append(kind)
            self.near.append(Near(left, right, lo, hi, is_open, is_nonzero, order, function))
            self._column(called, kind, left, right)
        return on, orders

    def _column(self, called: Any, kind: Kind, left: list[Any], right: list[Any]) -> None:
        names = (called, called) if isinstance(called, str) else called
        for side, values in enumerate((left, right)):
            self.columns[side][names[side]] = column_of(values, kind.types[side], kind.per[side])

    def _tolerance(
        self, kind: Kind, left: list[Any], right: list[Any]
    ) -> tuple[Any, Any, Any, bool, bool]:
        chance = self.chance
        lo, hi = limits_of(chance, kind, left, right)
        if kind.low == -100 and chance.random() < 0.7:  # small numbers: often all are near
            hi = chance.choice([0, 1, 2, 5, 40])
            lo = chance.choice([-hi, -hi, 0, -2])
            lo, hi = min(lo, hi), max(lo, hi)
        told = written(chance, kind, lo, hi)
        shape = chance.random()
        fits = all(end is None or abs(end) < 2**62 for end in (lo, hi))
        has_inside = lo is None or hi is None or hi - lo > 1
        if shape < 0.12 and fits and has_inside and (lo, hi) != (None, None) and not kind.is_float:
            ends = [e if e is None or kind.unit is None else f"{e}{kind.unit}" for e in (lo, hi)]
            return lo, hi, matwin.strict(*ends), True, False
        if shape < 0.24:
            return lo, hi, matwin.nonzero(told), False, True
        return lo, hi, told, False, False

    def _order(self, kind: Kind) -> tuple[str, Any, Any]:
        orders: list[tuple[str, Any, Any]] = [("distance", None, None)] * 6
        orders += [("youngest", None, "youngest"), ("indifferent", None, "indifferent")]
        if kind.low == -100:
            orders += [("minimize", total, matwin.minimize(total)),
                       ("partial", same_side, matwin.partial_order(same_side))]  # fmt: skip
        return self.chance.choice(orders)

    def _keys(self) -> Any:
        if self.chance.random() > 0.4:
            return None
        types, drawn = keys_of(self.chance, self.sizes)
        self.keys.append((drawn[0], drawn[1]))
        names = self.chance.choice([("k", "k"), ("k", "key")])
        for side in (0, 1):
            self.columns[side][names[side]] = pa.array(drawn[side], types[side])
        return "k" if names[0] == names[1] else [names]

    # ── options ──────────────────────────────────────────────────────────────────────────────

    def _where(self) -> dict[str, Any]:
        """A further attribute, which makes no pair better."""
        chance = self.chance
        if chance.random() > 0.3:
            return {}
        values = [[chance.randint(0, 2) for _ in range(size)] for size in self.sizes]
        for side in (0, 1):
            self.columns[side]["w"] = pa.array(values[side], pa.int64())
        lo, hi, told, is_open, is_nonzero = chance.choice([
            (None, None, matwin.nonzero(), False, True),
            (-1, 1, matwin.nonzero(1), False, True),
            (0, 0, 0, False, False), (-1, 0, (-1, 0), False, False),
            (0, None, matwin.strict(0, None), True, False),
        ])  # fmt: skip
        self.near.append(Near(values[0], values[1], lo, hi, is_open, is_nonzero, "indifferent"))
        return {"where": {"w": told}}

    def _best_options(self, how: str) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"keep_unmatched": how != "inner" and chance.random() < 0.5}
        if how in ("left", "right") and chance.random() < 0.7:
            named = [name for name, near in zip(self.names, self.near, strict=False)
                     if near.order != "partial" and isinstance(name, str)]  # fmt: skip
            choices: list[Any] = ["first", "last", "first", "last", "all"]
            if named:
                some = chance.sample(named, chance.randint(1, len(named)))
                choices += [some, [*some, "first"], [*some, "last"], (*some, "last")]
            found["ties"] = chance.choice(choices)
        return found

    def _asof(self) -> dict[str, Any]:
        chance, near = self.chance, self.near[0]
        kind = self.kinds[0]
        ends = [abs(end) for end in (near.lo, near.hi) if end is not None]
        far = max(ends, default=None) if chance.random() < 0.7 else None
        if far is not None and far >= 2**62 and not kind.is_float:
            far = None
        allows_exact = chance.random() < 0.7
        return {
            "on": self.names[0],
            "tolerance": far if far is None or kind.unit is None else f"{far}{kind.unit}",
            "far": far,
            "direction": chance.choice(["backward", "forward", "nearest"]),
            "allow_exact_matches": allows_exact,
            "ties": chance.choice(["first", "last", "all"]),
            "how": chance.choice(["left", "inner"]),
            "ordered": chance.random() < 0.7,
        }

    # ── the plain loop ───────────────────────────────────────────────────────────────────────

    def _has_equal_keys(self, i: int, j: int) -> bool:
        return all(is_same(ours[i], theirs[j]) for ours, theirs in self.keys)

    def _pairs(self, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
        how = arguments["how"]
        eligible = [
            (i, j) for i in range(self.sizes[0]) for j in range(self.sizes[1])
            if self._has_equal_keys(i, j) and all(near.admits(i, j) for near in self.near)
        ]  # fmt: skip
        lefts, rights = {i for i, _ in eligible}, {j for _, j in eligible}
        lonely = [i for i in range(self.sizes[0]) if i not in lefts]
        if how == "semi":
            return [(i,) for i in lefts]
        if how == "anti":
            return [(i,) for i in lonely]
        chosen: list[tuple[Any, Any]] = list(eligible)
        keeps = how != "inner"
        if self.join == "best":
            chosen = list(self._best(eligible, how))
            chosen = self._without_ties(chosen, how, arguments.get("ties", "all"))
            keeps = arguments["keep_unmatched"]
        if keeps and how in ("left", "full"):
            chosen += [(i, None) for i in lonely]
        if keeps and how in ("right", "full"):
            chosen += [(None, j) for j in range(self.sizes[1]) if j not in rights]
        return chosen

    def _best(self, eligible: list[Pair], how: str) -> set[Pair]:
        best: set[Pair] = set()
        sides: list[Any] = {"left": [0], "right": [1], "full": [0, 1], "inner": [None]}[how]
        for side in sides:
            groups: dict[int, list[Pair]] = {}
            for pair in eligible:
                groups.setdefault(0 if side is None else pair[side], []).append(pair)
            for group in groups.values():
                alike: dict[Any, list[Pair]] = {}
                for pair in group:
                    alike.setdefault(self._profile(pair), []).append(pair)
                for one, pairs in alike.items():
                    if not any(self._dominates(other, one) for other in alike):
                        best.update(pairs)
        return best

    def _profile(self, pair: Pair) -> tuple[Any, ...]:
        return tuple(near.profile(*pair) for near in self.near)

    def _dominates(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        both = list(zip(self.near, one, other, strict=True))
        return all(near.is_as_good(a, b) for near, a, b in both) and not all(
            near.is_as_good(b, a) for near, a, b in both
        )

    def _without_ties(self, chosen: list[Pair], how: str, ties: Any) -> list[Pair]:
        probe = 1 if how == "right" else 0
        for word in [ties] if isinstance(ties, str) else ties:
            groups: dict[int, list[Pair]] = {}
            for pair in chosen:
                groups.setdefault(pair[probe], []).append(pair)
            if word in ("first", "last"):
                end = min if word == "first" else max
                chosen = [end(group, key=lambda p: p[1 - probe]) for group in groups.values()]
            elif word != "all":
                near = self.near[self.names.index(word)]
                least = {row: min(near.profile(*p) for p in group)
                         for row, group in groups.items()}  # fmt: skip
                chosen = [p for p in chosen if near.profile(*p) == least[p[probe]]]
        return chosen

    def _nearest(self, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
        far, direction = arguments.pop("far"), arguments["direction"]
        near = self.near[0]
        found: list[tuple[Any, ...]] = []
        for i in range(self.sizes[0]):
            ours = near.left[i]
            good: list[tuple[Fraction, bool, int]] = []
            for j in range(self.sizes[1]):
                theirs = near.right[j]
                if not (is_comparable(ours) and is_comparable(theirs)):
                    continue
                apart = theirs - ours
                if not self._has_equal_keys(i, j) or (far is not None and abs(apart) > far):
                    continue
                if theirs == ours and not arguments["allow_exact_matches"]:
                    continue
                is_after = theirs > ours
                is_other = ours != theirs and is_after != (direction == "forward")
                if direction != "nearest" and is_other:
                    continue
                # Exactly: the distances of two floats may round to the same number.
                exact = abs(Fraction(theirs) - Fraction(ours))
                good.append((exact, is_after, j))
            ties = arguments["ties"]
            least = min(good, default=(Fraction(0), False, 0))
            if ties == "all":
                good = [one for one in good if one[0] == least[0]]
            else:
                good = [one for one in good if one[:2] == least[:2]]
                good = good[:1] if ties == "first" else good[-1:]
            found += [(i, j) for *_, j in good]
            if not good and arguments["how"] == "left":
                found.append((i, None))
        return found

    def _measured(
        self, arguments: dict[str, Any], rows: list[tuple[Any, ...]]
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns of distances, where they are asked for, and the rows with them."""
        chance = self.chance
        if self.join == "asof":
            arguments["is_ordered"] = arguments["ordered"]
            return [], rows
        wants = chance.random() < 0.4 and all(kind.unit is None for kind in self.kinds)
        arguments["distances"] = wants
        orders = [near.order for near in self.near]
        may = not (arguments["how"] == "inner" and self.join == "best" and "partial" in orders)
        arguments["ordered"] = arguments["is_ordered"] = may and chance.random() < 0.4
        if not wants or (rows and len(rows[0]) == 1):
            return [], rows
        if arguments["how"] in ("semi", "anti"):
            return [], rows
        shown = [(n if isinstance(n, str) else n[0], near)
                 for n, near in zip(self.names, self.near, strict=False)
                 if near.order == "distance"]  # fmt: skip
        full = [
            (*row, *(None if None in row else abs(near.right[row[1]] - near.left[row[0]])
                     for _, near in shown))
            for row in rows
        ]  # fmt: skip
        return [f"{name}_distance" for name, _ in shown], full


def _has_place(value: Any) -> bool:
    return value is not None and value == value
