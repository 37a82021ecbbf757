"""The joins of one select while they are chosen: leaves, and joins of them.

        Branch (ε-join)
        ├── Branch (bestmatch)
        │   ├── Leaf a
        │   └── Leaf b
        └── Leaf c

A leaf is a table of the from clause, or several that DuckDB joins first.  Filters go down to a leaf
as long as every join on the way keeps their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from .names import Input
from .recognise import Ref


@dataclass(slots=True)
class Leaf:
    """What a join reads: inputs, and the items of the from clause that they are."""

    inputs: list[Input]
    items: list[exp.Expr]
    filters: list[tuple[str, frozenset[Ref]]] = field(default_factory=list)
    """Conditions on its rows, in the query's words, and the columns they need."""
    is_outer: bool = False
    """Whether DuckDB joins its items with rows that lack a partner: then no filter may come in."""

    @property
    def aliases(self) -> list[str]:
        """The names of its inputs."""
        return [one.alias for one in self.inputs]

    def leaves(self) -> Iterator[Leaf]:
        """Itself."""
        yield self

    def takes_filter(self, aliases: frozenset[str]) -> Leaf | None:
        """The leaf to which a filter on these inputs may go."""
        return self if aliases and aliases <= set(self.aliases) and not self.is_outer else None


@dataclass(slots=True)
class Branch:
    """A join of ours; `keeps` are the children through which filters keep their meaning."""

    kind: str
    children: list[Leaf | Branch]
    keeps: tuple[int, ...]
    data: Any
    at: exp.Expr
    """Where it stands, for messages."""

    @property
    def aliases(self) -> list[str]:
        """The names of all inputs."""
        return [alias for child in self.children for alias in child.aliases]

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, left to right."""
        for child in self.children:
            yield from child.leaves()

    def takes_filter(self, aliases: frozenset[str]) -> Leaf | None:
        """The leaf to which a filter on these inputs may go."""
        found = (self.children[number].takes_filter(aliases) for number in self.keeps)
        return next((leaf for leaf in found if leaf is not None), None)


Operand = Leaf | Branch
