"""Names of columns by the thousand: told apart in one pass, and never all in one message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

SHOWN = 20


def repeated(names: Iterable[str]) -> list[str]:
    """The names that are there more than once, in order.

    >>> repeated(["b", "a", "b", "a", "c"])
    ['a', 'b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def listed(names: Sequence[str]) -> str:
    """The names for a message: the first of them, and how many more there are.

    >>> print(listed(["t", "k"]), listed([f"c{n}" for n in range(10_000)])[-27:])
    ['t', 'k'] 'c18', 'c19', … 9,980 more]
    """
    if len(names) <= SHOWN:
        return str(list(names))
    return f"{str(list(names[:SHOWN]))[:-1]}, … {len(names) - SHOWN:,} more]"
