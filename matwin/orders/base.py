"""What an order is to the joins: one face, and two ways to compare pairs behind it.

    Order ──▶ Measure    a pair has a number, and the smaller one is better
          └─▶ BlackBox   two pairs are compared with each other, one by one

A measure says the same in up to four ways; the first is what it means, and the others are faster:

                          in Python   on columns                  in the kernel   in SQL
    how good a pair is    cost        keys (is_refined)           kernel          cost_sql
    what is shown of it               distances, distance_type                    distance_sql

Nobody outside of this package asks which order it is.  They ask for its `measure` or `black_box`,
and what these can do.  So a new order is one class in one file: a `Measure` with a `cost`, or a
`BlackBox` with a `compare`, is complete, and whatever else it has makes it faster or better shown.
An object of it is given in ``orders=``; only a word for it stands in ``__init__.py``.

Invariant: an order is constant and travels to other processes; what it learns during a join is in
what `keys`, `distances` and `comparison` return, which each join asks for anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError

if TYPE_CHECKING:
    from ..functions import PairFunction

Pair: TypeAlias = tuple[Any, Any]
Values: TypeAlias = npt.NDArray[Any]
Keys: TypeAlias = Callable[[Values, Values], tuple[Int64s, ...]]
Distances: TypeAlias = Callable[[Values, Values], pa.Array]
Compare: TypeAlias = "Callable[[Any, Any], bool | None]"


class Order:
    """Which pairs of a left and a right value are better."""

    __slots__ = ()

    needs_numbers: ClassVar[bool] = False
    """Whether it has a meaning for numbers and times only."""

    @property
    def measure(self) -> Measure | None:
        """How it gives a pair a number, if it does."""
        return None

    @property
    def black_box(self) -> BlackBox | None:
        """How it compares two pairs, if it gives them no number."""
        return None

    def check(self, left: pa.Field, right: pa.Field) -> None:
        """Refuse columns that it can't compare."""


class Measure(Order, ABC):
    """An order by a number.  Whole columns of pairs are compared by compiled code."""

    __slots__ = ()

    kernel: ClassVar[str | None] = None
    """What the compiled kernel calls its keys, if it makes them by itself."""
    is_refined: ClassVar[bool] = True
    """Whether its keys are two: a second one that decides where the first are equal."""
    is_shown: ClassVar[bool] = True
    """Whether ``distances=True`` has a column of it."""

    @property
    def measure(self) -> Measure:
        """Itself."""
        return self

    @abstractmethod
    def cost(self, left: Any, right: Any) -> Any:
        """The number of a pair, of Python's own values: the smaller the better."""

    def keys(self) -> Keys:
        """What makes keys of columns of pairs: int64 that ascend with the cost."""
        return _called(self.cost).keys

    def distance_type(self, data_type: pa.DataType) -> pa.DataType:
        """The type of its distance column, for values of this type."""
        return pa.float64()

    def distances(self, field: pa.Field) -> Distances:
        """What makes its distance column; `field` has the attribute's name and type."""
        function = _called(self.cost)
        return lambda left, right: pa.array(function(left, right))

    def cost_sql(self, left: str, right: str) -> str | None:
        """The cost in SQL, of two expressions; None: only Python knows it."""
        return None

    def distance_sql(self, cost: str, data_type: pa.DataType) -> str:
        """The distance in SQL, of the cost; times are counts of their unit."""
        return f"{cost}::DOUBLE"


class BlackBox(Order, ABC):
    """An order without a number.  It is asked pair by pair."""

    __slots__ = ()

    @property
    def black_box(self) -> BlackBox:
        """Itself."""
        return self

    @abstractmethod
    def compare(self, one: Pair, other: Pair) -> bool | None:
        """Whether a pair is at least as good as another; False: it is worse, None: neither."""

    def boxes(self, left: Values, right: Values) -> Values:
        """What is kept of each pair, to be compared: its two values."""
        pairs = np.empty(len(left), object)
        pairs[:] = list(zip(left.tolist(), right.tolist(), strict=True))
        return pairs

    def comparison(self) -> Compare:
        """`compare` for what is kept, with its answers checked."""
        return _checked(self.compare)


def _called(cost: Callable[[Any, Any], Any]) -> PairFunction:
    from ..functions import PairFunction  # loads Numba, which a question does without

    return PairFunction(cost)


def _checked(function: Compare) -> Compare:
    name = name_of(function)

    def compare(one: Any, other: Any) -> bool | None:
        try:
            answer = function(one, other)
        except Exception as e:
            raise InputError(
                f"the partial order {name!r} fails for {one} and {other}: {type(e).__name__}: {e}"
            ) from e
        if answer is not None and not isinstance(answer, bool | np.bool_):
            raise InputError(
                f"the partial order {name!r} returns {answer!r} for {one} and {other}; it must "
                "return True, False or None"
            )
        return None if answer is None else bool(answer)

    compare.__name__ = name
    return compare


def name_of(function: Any) -> str:
    """What a function is called in a message."""
    return str(getattr(function, "__name__", None) or repr(function))


def called(function: Any) -> Any:
    """The function, if it is one."""
    if not callable(function):
        raise InputError(f"{function!r} is not a function; an order needs one")
    return function
