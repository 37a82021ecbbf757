"""Methods: `a.name.upper()` is a function of the column `a.name`.

sqlglot reads what stands before a point as identifiers.  Here they become columns again, so that
they mean the same as everywhere else.
"""

from __future__ import annotations

from sqlglot import exp

_HOLDERS = (exp.Column, exp.Dot, exp.Alias, exp.TableAlias, exp.Table, exp.Lambda, exp.Interval,
            exp.Cast, exp.DataType, exp.PropertyEQ)  # fmt: skip


def straighten_methods(tree: exp.Expr) -> None:
    """Make columns of the names that methods are called on."""
    for dot in list(tree.find_all(exp.Dot)):
        if isinstance(dot.expression, exp.Func) and dot.this is not None:
            for node in list(dot.this.walk()):
                _straighten(node)


def _straighten(node: exp.Expr) -> None:
    is_pair = isinstance(node, exp.Dot) and all(
        isinstance(one, exp.Identifier) for one in (node.this, node.expression)
    )
    if is_pair:
        node.replace(exp.Column(this=node.expression, table=node.this))
    elif isinstance(node, exp.Identifier) and (
        not isinstance(node.parent, _HOLDERS) or _is_called(node)
    ):
        column = exp.Column()
        node.replace(column)
        column.set("this", node)


def _is_called(node: exp.Identifier) -> bool:
    """Whether it stands alone before a method: ``name.upper()``."""
    dot = node.parent
    return isinstance(dot, exp.Dot) and dot.this is node and isinstance(dot.expression, exp.Func)
