"""An order is one class: who makes a new one changes nothing else, and nobody asks which it is."""

from __future__ import annotations

import ast
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin.candidates import plain_keys
from matwin.orders import BlackBox, Measure, Order, min_distance, minimize, partial_order, youngest
from matwin.orders.base import Keys, Pair
from matwin.question import Question
from matwin.tools.verify_sql import sql_of

ROOT = Path(__file__).resolve().parent.parent
HOWS = ("inner", "left", "right", "full")
ON_PAGES = {"memory": 32 * 4096, "page_size": "4KiB", "materialize": "slab"}


class Farthest(Measure):
    """What a new order needs at least."""

    needs_numbers: ClassVar[bool] = True

    def __repr__(self) -> str:
        return "farthest"

    def cost(self, left: Any, right: Any) -> Any:
        return -abs(right - left)


class FarthestByColumns(Farthest):
    """The same with what makes it faster, and known to DuckDB."""

    is_refined: ClassVar[bool] = False

    def keys(self) -> Keys:
        return lambda left, right: (-np.abs(right - left),)

    def cost_sql(self, left: str, right: str) -> str:
        return f"0 - abs({right} - {left})"


class LongerPrefix(BlackBox):
    """Texts that begin with more of the same letters, if those begin with the other's."""

    def compare(self, one: Pair, other: Pair) -> bool | None:
        return self._common(one).startswith(self._common(other)) or None

    def _common(self, pair: Pair) -> str:
        alike = [a == b for a, b in zip(*pair, strict=False)]
        return str(pair[0][: [*alike, False].index(False)])


def numbers(rows: int, seed: int) -> pa.Table:
    made = np.random.default_rng(seed)
    return pa.table({"t": made.integers(0, 3 * rows, rows), "x": made.integers(0, 50, rows)})


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("order", [Farthest(), FarthestByColumns()], ids=["cost", "columns"])
@pytest.mark.parametrize("options", [{}, ON_PAGES], ids=["memory", "pages"])
@pytest.mark.parametrize("how", HOWS)
def test_a_new_measure_is_one_class(order: Order, options: dict[str, Any], how: str) -> None:
    left, right = numbers(1000, 1), numbers(900, 2)
    asked: dict[str, Any] = {"on": {"t": 20, "x": 10}, "how": how, "orders": {"x": order}}
    report = matwin.Report()
    found = matwin.bestmatch_join(
        left, right, **asked, distances=True, report=report, **options
    ).read_all()
    assert (report.pages_written > 0) == bool(options)
    same = matwin.bestmatch_join(
        left, right, **asked | {"orders": {"x": lambda a, b: -abs(b - a)}}, distances=True
    )
    assert found.num_rows > 0
    assert bag(found) == bag(same.read_all())
    assert matwin.verify(left, right, **asked, distances=True, result=found).is_equal


def test_a_new_measure_is_explained_and_may_have_sql() -> None:
    left, right = numbers(3, 1), numbers(3, 2)
    asked: dict[str, Any] = {"on": {"t": 20, "x": 10}, "orders": {"x": FarthestByColumns()}}
    assert "x (farthest)" in " ".join(str(matwin.explain_join(left, right, **asked)).split())
    question = Question.of(left.schema, right.schema, best=True, how="left", **asked)
    assert "0 - abs(r1 - l1) AS c1" in sql_of(question)


def test_a_new_measure_says_what_it_needs() -> None:
    texts = pa.table({"t": ["a"]})
    with pytest.raises(matwin.InputError, match="farthest needs numbers or times"):
        matwin.bestmatch_join(texts, texts, on={"t": None}, orders={"t": Farthest()})


OF_LEFT = {("window", "wind"), ("winter", "winters"), ("join", "x")}
OF_RIGHT = {("window", "wind"), ("window", "win"), ("winter", "win"), ("winter", "winters")}
OF_RIGHT |= {("join", "x")}
PREFIXES = {
    "left": OF_LEFT, "right": OF_RIGHT, "full": OF_LEFT | OF_RIGHT,
    "inner": OF_LEFT - {("join", "x")},  # whose common beginning is that of all
}  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
def test_a_new_black_box_is_one_class(how: str) -> None:
    left = pa.table({"k": [1, 1, 2], "word": ["window", "winter", "join"]})
    right = pa.table({"k": [1, 1, 1, 2], "word": ["wind", "win", "winters", "x"]})
    asked: dict[str, Any] = {"on": {"word": None}, "by": "k", "how": how}
    found = matwin.bestmatch_join(left, right, **asked, orders={"word": LongerPrefix()}).read_all()
    words = (found[f"word_{side}"].to_pylist() for side in ("left", "right"))
    assert set(zip(*words, strict=True)) == PREFIXES[how]
    assert matwin.verify(
        left, right, **asked, orders={"word": LongerPrefix()}, result=found
    ).is_equal


# ── what an order says in several ways is the same ───────────────────────────────────────────

VALUES = st.integers(-(2**40), 2**40) | st.integers(-3, 3)


@pytest.mark.parametrize("order", [min_distance, youngest, minimize(max), Farthest()], ids=repr)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@given(pairs=st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=20))
def test_keys_ascend_with_the_cost(order: Measure, dtype: Any, pairs: list[Pair]) -> None:
    left, right = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    made = np.column_stack(order.keys()(left, right))
    assert made.shape[1] == 1 + order.is_refined
    keys = plain_keys(made, (0,) if order.is_refined else ())[:, 0].tolist()
    costs = [order.cost(a, b) for a, b in pairs]
    for one in range(len(pairs)):
        assert [costs[one] < cost for cost in costs] == [keys[one] < key for key in keys]


def first_is_less(one: Pair, other: Pair) -> bool | None:
    return one[0] <= other[0]


@pytest.mark.parametrize(
    "order",
    [min_distance, youngest, matwin.subset, minimize(max), partial_order(first_is_less)],
    ids=repr,
)
def test_orders_travel(order: Order) -> None:
    assert pickle.loads(pickle.dumps(order)) == order


# ── nobody asks which order it is ────────────────────────────────────────────────────────────


def subclasses(of: type) -> Iterator[type]:
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


FACE = {"Order", "Measure", "BlackBox"}
KINDS = {one.__name__ for one in subclasses(Order) if one.__module__.startswith("matwin.")} - FACE


def questions_about_kinds(source: str) -> list[int]:
    """Lines that name a kind of order, or ask whether something is one at all."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                if name in KINDS:
                    found.append(node.lineno)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                if FACE & {n.id for n in ast.walk(kind) if isinstance(n, ast.Name)}:
                    found.append(node.lineno)
            case ast.MatchClass(cls=ast.Name(id=name)):
                if name in FACE:
                    found.append(node.cls.lineno)
    return found


def test_nobody_asks_which_order_it_is() -> None:
    found = []
    for layer in ("storage", "scheduler", "matwin", "operators", "tools"):
        for file in sorted((ROOT / layer).rglob("*.py")):
            if not file.is_relative_to(ROOT / "matwin" / "orders"):
                lines = questions_about_kinds(file.read_text(encoding="utf-8"))
                found += [f"{file.relative_to(ROOT)}:{line}" for line in lines]
    assert found == []


def test_the_kinds_are_known() -> None:
    assert {
        "MinDistance", "Youngest", "Minimize", "Subset", "PartialOrder", "Indifferent"
    } == KINDS  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "from matwin.orders import Youngest",
        "isinstance(a.order, orders.Minimize)",
        "isinstance(order, Measure | None)",
        "type(order) is Subset",
        "match order:\n    case PartialOrder(function):\n        pass",
        "match order:\n    case BlackBox():\n        pass",
    ],
)
def test_a_question_about_kinds_is_noticed(source: str) -> None:
    assert questions_about_kinds(source)


def test_what_an_order_can_do_may_be_asked() -> None:
    assert not questions_about_kinds("def f(order: Order) -> bool:\n    return bool(order.measure)")
