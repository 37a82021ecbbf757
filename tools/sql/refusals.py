"""What is a query to sqlglot, and none to DuckDB: refused at its place, before anything is planned.

select * from a join b          how the two belong together is not said
select from a                   nothing is selected
where t > ?                     nobody gives a value for it
"""

from __future__ import annotations

from sqlglot import exp

from .dialect import SPAN, Parsed
from .errors import Place, place_of, wrong

_UNCONDITIONAL = ("CROSS", "NATURAL", "POSITIONAL", "ASOF")


def refuse(query: Parsed, text: str) -> None:
    """Raise `SqlError` for what DuckDB would refuse without naming the place."""
    for node in query.tree.find_all(exp.Placeholder, exp.Parameter):
        message = (
            "there are no parameters here: write the value itself; tables, functions and lengths "
            "of windows are given by keyword, matwin.sql(text, name=value)"
        )
        raise wrong(text, message, _near(node))
    for select in query.tree.find_all(exp.Select):
        if not select.expressions:
            raise wrong(text, "name what is selected: columns, or *", _near(select))
    for join in query.tree.find_all(exp.Join):
        if not _is_said(join, query.text):
            message = (
                "say how the two are joined: on a.k = b.k, or using (k); for all pairs write "
                "cross join"
            )
            raise wrong(text, message, _near(join))


def _is_said(join: exp.Join, text: str) -> bool:
    """Whether a join has a condition, or needs none."""
    if join.args.get("on") is not None or join.args.get("using"):
        return True
    if join.kind in _UNCONDITIONAL or join.method in _UNCONDITIONAL:
        return True
    place = join.meta.get(SPAN)
    return place is None or not text[place.start :].lower().startswith(_WORDS)


_WORDS = ("join", "inner", "left", "right", "full", "semi", "anti")
"""What a join begins with that needs a condition; a comma needs none."""


def _near(node: exp.Expr) -> Place | None:
    """The place of a node, or of what is around it."""
    found = node.meta.get(SPAN) or place_of(node)
    if found is None and node.parent is not None:
        return _near(node.parent)
    return found
