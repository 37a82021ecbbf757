"""Which columns of a table a query can possibly need, by the names that stand in it.

A column whose name stands nowhere in the query is needed only by a star.  That is coarse, and never
too little: it needs no understanding of what DuckDB makes of a name.  For tables that we join,
`selects.py` knows it exactly.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp


def names_in(tree: exp.Expr) -> frozenset[str]:
    """All names in a query, in lower case."""
    return frozenset(one.name.lower() for one in tree.find_all(exp.Identifier))


def scan_columns(
    schema: pa.Schema, alias: str, select: exp.Expr | None, names: frozenset[str]
) -> tuple[str, ...]:
    """The columns of a table in a select's from clause that may be needed."""
    if select is None or takes_all(select, alias):
        return tuple(schema.names)
    found = tuple(name for name in schema.names if name.lower() in names)
    return found or (narrowest(schema),)


def narrowest(schema: pa.Schema) -> str:
    """A column that costs little, where only the number of rows counts."""
    fixed = [one for one in schema if _width(one.type) is not None]
    return str(min(fixed, key=lambda one: _width(one.type) or 0).name if fixed else schema.names[0])


def _width(data_type: pa.DataType) -> int | None:
    try:
        return int(data_type.bit_width)
    except ValueError:
        return None


def takes_all(select: exp.Expr, alias: str) -> bool:
    """Whether a select may take all columns of this table."""
    if not isinstance(select, exp.Select):
        return True
    if any(_is_natural(one) or one.args.get("pivots") for one in select.find_all(exp.Join)):
        return True
    if any(one.args.get("pivots") or _renames(one) for one in select.find_all(exp.Table)):
        return True
    for star in select.find_all(exp.Star):
        table = star.parent.table if isinstance(star.parent, exp.Column) else ""
        if table.lower() == alias.lower() and table:
            return True
        is_own = star.find_ancestor(exp.Select) is select
        if not table and is_own and not isinstance(star.parent, exp.Count):
            return True
    wholes = (one for one in select.find_all(exp.Column) if not one.table)
    has_columns = bool(select.find(exp.Columns))
    return has_columns or any(one.name.lower() == alias.lower() for one in wholes)


def _is_natural(join: exp.Join) -> bool:
    return (join.method or "").upper() == "NATURAL"


def _renames(table: exp.Table) -> bool:
    alias = table.args.get("alias")
    return bool(alias is not None and alias.args.get("columns"))
