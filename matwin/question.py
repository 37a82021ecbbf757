"""The question a join answers, resolved against both schemas.  Constant; nothing here reads a row.

    Question   attributes (with ε and order), keys, how, what comes out
       │
       ├── a pair is eligible when keys are equal and lo <= right - left <= hi on every attribute
       └── best: no other eligible pair (of the same row, or of all) is at least as good on every
           attribute and strictly better on one; ties all stay

Output columns: the left ones, then the right ones.  A key of the same name on both sides stands
there once.  Other names that clash get the suffixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.layout import check_names, check_storable
from matwin.storage.names import repeated
from matwin.storage.units import Tolerance

from .attributes import Attribute, KeyPair, attributes_of, filters_of, keys_of
from .hints import how_hint
from .orders import BlackBox, Measure

BestHow: TypeAlias = Literal["inner", "left", "right", "full"]
EpsilonHow: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
By: TypeAlias = "str | tuple[str, str] | Sequence[str | tuple[str, str]] | None"
BESTMATCH_HOWS: tuple[str, ...] = get_args(BestHow)
EPSILON_HOWS: tuple[str, ...] = get_args(EpsilonHow)
RESERVED = "matwin "


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.  `best` tells a bestmatch join from an ε-join."""

    left: pa.Schema
    right: pa.Schema
    attributes: tuple[Attribute, ...]
    keys: tuple[KeyPair, ...]
    how: str
    best: bool
    keep_unmatched: bool
    suffixes: tuple[str, str]
    distances: bool

    @classmethod
    def of(
        cls,
        left: pa.Schema,
        right: pa.Schema,
        *,
        on: Mapping[Any, Tolerance],
        by: object = None,
        how: str,
        best: bool,
        orders: Mapping[Any, object] | None = None,
        where: Mapping[Any, Any] | None = None,
        keep_unmatched: bool = False,
        suffixes: tuple[str, str] = ("_left", "_right"),
        distances: bool = False,
    ) -> Question:
        """The question of the arguments, checked before any data is read."""
        hows = BESTMATCH_HOWS if best else EPSILON_HOWS
        if how not in hows:
            raise InputError(f"how={how!r}; choose one of {', '.join(hows)}{how_hint(how)}")
        if best and how == "inner" and keep_unmatched:
            raise InputError("keep_unmatched=True goes with how='left', 'right' or 'full'")
        question = cls(
            _plain(left, "left"), _plain(right, "right"),
            (*attributes_of(left, right, on, orders), *filters_of(left, right, where)),
            keys_of(left, right, by),
            how, best, keep_unmatched, _checked_suffixes(suffixes), distances,
        )  # fmt: skip
        question._check_named_once()
        question._check_reserved()
        check_names(question.schema)
        return question

    def _check_named_once(self) -> None:
        # An attribute may be compared with several others: a time with the start and the end.
        for side in ("left", "right"):
            names = [*{getattr(a, side) for a in self.attributes}]
            twice = repeated([*names, *(getattr(key, side) for key in self.keys)])
            if twice:
                raise InputError(f"{side}: {twice} are named twice among on= and by=")

    def _check_reserved(self) -> None:
        for side in ("left", "right"):
            for name in getattr(self, side).names:
                if name.lower().startswith(RESERVED):
                    raise InputError(
                        f"{side}: column {name!r}: names that begin with {RESERVED!r} are kept for "
                        "our own columns; rename it"
                    )

    @property
    def order(self) -> Attribute:
        """The order attribute: the first."""
        return self.attributes[0]

    @property
    def has_right(self) -> bool:
        """Whether right columns come out."""
        return self.best or self.how not in ("semi", "anti")

    @property
    def shared_keys(self) -> frozenset[str]:
        """Keys that stand once in the output."""
        return frozenset(key.left for key in self.keys if key.left == key.right)

    @property
    def may_lack(self) -> tuple[bool, bool]:
        """Whether an output row may come without its left row, and without its right row."""
        if self.best:
            lacks = self.keep_unmatched
            return lacks and self.how in ("right", "full"), lacks and self.how in ("left", "full")
        return self.how in ("right", "full"), self.how in ("left", "full")

    def output_names(self) -> tuple[dict[str, str], dict[str, str]]:
        """How the left and the right columns are called in the output."""
        if not self.has_right:
            return {name: name for name in self.left.names}, {}
        shared = self.shared_keys
        rights = [name for name in self.right.names if name not in shared]
        clash = set(self.left.names) & set(rights)
        ours, theirs = self.suffixes
        left = {name: name + ours if name in clash else name for name in self.left.names}
        return left, {name: name + theirs if name in clash else name for name in rights}

    @property
    def measured(self) -> tuple[Attribute, ...]:
        """The attributes that get a distance column."""
        return tuple(a for a in self.attributes if a.is_measured)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The orders by a number, one for each attribute that is measured."""
        found = (a.order.measure for a in self.attributes)
        return tuple(measure for measure in found if measure is not None)

    @property
    def black_boxes(self) -> tuple[BlackBox, ...]:
        """The orders without a number."""
        found = (a.order.black_box for a in self.attributes)
        return tuple(box for box in found if box is not None)

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        left_names, right_names = self.output_names()
        lacks_left, lacks_right = self.may_lack
        fields = []
        shared = {key.left: key.type for key in self.keys if key.left == key.right}
        for field in self.left:
            nullable = field.nullable or lacks_left
            out = field.with_name(left_names[field.name]).with_nullable(nullable)
            if lacks_left and field.name in shared:  # it may hold a value of either side
                out = out.with_type(shared[field.name])
            fields.append(out)
        for field in self.right:
            if field.name in right_names:
                nullable = field.nullable or lacks_right
                fields.append(field.with_name(right_names[field.name]).with_nullable(nullable))
        if self.distances:
            names = self.distance_names()
            fields += [
                pa.field(name, a.distance_type)
                for name, a in zip(names, self.measured, strict=True)
            ]
        return pa.schema(fields)

    def distance_names(self) -> list[str]:
        """By the left name, and by both where that stands twice."""
        lefts = [a.left for a in self.measured]
        return [
            f"{a.left if lefts.count(a.left) == 1 else f'{a.left}_{a.right}'}_distance"
            for a in self.measured
        ]

    def swapped(self) -> Question:
        """The same question with the sides exchanged."""
        mirror = {"left": "right", "right": "left"}
        return replace(
            self,
            left=self.right,
            right=self.left,
            attributes=tuple(a.swapped() for a in self.attributes),
            keys=tuple(k.swapped() for k in self.keys),
            how=mirror.get(self.how, self.how),
            suffixes=(self.suffixes[1], self.suffixes[0]),
        )


def _plain(schema: pa.Schema, side: str) -> pa.Schema:
    try:
        check_names(schema)
        plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
        check_storable(plain)
    except InputError as e:
        raise InputError(f"{side}: {e}") from e
    return plain


def _checked_suffixes(suffixes: object) -> tuple[str, str]:
    match suffixes:
        case (str(left), str(right)):
            return left, right
    raise InputError(f"suffixes={suffixes!r}: give two texts, such as ('_left', '_right')")
