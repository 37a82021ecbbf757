"""Streams that may never end, under what waits for their last row: refused before one is read.

    select count(*) from ticks                              waits for ever
    select count(*) from (select * from ticks limit 100)    ends
    select count(*) from stream(ticks, 'CUT ON ts BY 60 SECS') s        a count for each minute

Rows that pass one by one, and joins whose windows close, are handed on as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from matwin.growing import Growing
from matwin.sources import Source
from matwin.streams import Stream

from .binding import items_of, table_of
from .errors import place_of, wrong
from .nodes import Scan

CLAUSES = {
    "group": "group by", "having": "having", "qualify": "qualify", "distinct": "distinct",
    "order": "order by", "sample": "a sample",
}  # fmt: skip


def may_never_end(source: Source) -> bool:
    """Whether a source may go on for ever."""
    inner = source.source if isinstance(source, Stream) else source
    if isinstance(inner, Growing):
        return not inner.switch.is_on
    return isinstance(source, Stream) and source.is_live


class Endless:
    """Looks for them in one query."""

    def __init__(
        self, text: str, scan_of: Callable[[exp.Table], Scan | None],
        cte_of: Callable[[exp.Table], exp.CTE | None], aggregates: frozenset[str],
    ) -> None:  # fmt: skip
        self._text, self._scan_of, self._cte_of = text, scan_of, cte_of
        self._aggregates = aggregates

    def refuse(self, tree: exp.Expr) -> None:
        """Raise `SqlError` where all rows of a stream are waited for that may have no last one."""
        scans = [(one, scan) for one in tree.find_all(exp.Table) if (scan := self._scan_of(one))]
        cut = next((scan for _, scan in scans if scan.spec is not None), None)
        for table, scan in scans:
            if cut is not None and scan.spec is None and may_never_end(scan.source):
                message = (
                    f"{scan.label} may never end, and is not cut as {cut.label} is; "
                    f"write stream({scan.label}, 'CUT …') as there"
                )
                raise wrong(self._text, message, table)
        for query in tree.find_all(exp.Select, exp.SetOperation):
            waits = self._waits(query)
            scan = next(self._live(query), None) if waits is not None else None
            if waits is not None and scan is not None:
                self._refuse(*waits, scan, query)

    def _refuse(self, node: exp.Expr, called: str, scan: Scan, query: exp.Expr) -> None:
        name = scan.label if scan.label.isidentifier() else f"'{scan.label}'"
        on = getattr(scan.source, "on", None) or "ts"
        cut = f"stream({name}, 'CUT ON {on} BY 60 SECS') s"
        message = (
            f"{scan.label} is a live stream, which may never end, and {called} waits for its last "
            f"row; cut it, so that each chunk has an answer: from {cut}, take some rows first: "
            f"from (select * from {name} limit 1000) s, or say that it ends: "
            "matwin.stream(…, live=False)"
        )
        raise wrong(self._text, message, place_of(node) or place_of(query))

    def _waits(self, query: exp.Expr) -> tuple[exp.Expr, str] | None:
        """What in a query, and not in one within it, needs all rows before it gives one."""
        for name, called in CLAUSES.items():
            found = query.args.get(name)
            if isinstance(found, exp.Expr):
                return found, called
        if isinstance(query, exp.SetOperation):
            keeps_all = isinstance(query, exp.Union) and not query.args.get("distinct")
            return None if keeps_all else (query, query.key)
        for node in query.find_all(exp.AggFunc, exp.Window, exp.Anonymous):
            is_one = not isinstance(node, exp.Anonymous) or node.name.lower() in self._aggregates
            if is_one and node.find_ancestor(exp.Select) is query:
                return node, "an aggregate" if not isinstance(node, exp.Window) else "over (…)"
        return None

    def _live(self, query: exp.Expr) -> Iterator[Scan]:
        """The streams that it may read for ever."""
        if isinstance(query, exp.Subquery):
            if not query.args.get("limit"):
                yield from self._live(query.this)
        elif isinstance(query, exp.SetOperation):
            yield from self._live(query.left)
            yield from self._live(query.right)
        elif isinstance(query, exp.Select):
            for item in items_of(query):
                yield from self._of_item(table_of(item))

    def _of_item(self, item: exp.Expr) -> Iterator[Scan]:
        for join in item.args.get("joins") or ():
            yield from self._of_item(table_of(join))
        if isinstance(item, exp.Table):
            scan, cte = self._scan_of(item), self._cte_of(item)
            if scan is not None and scan.spec is None and may_never_end(scan.source):
                yield scan
            if cte is not None:
                yield from self._bounded(cte.this)
        elif isinstance(item, exp.Subquery):
            yield from self._bounded(item)

    def _bounded(self, query: exp.Expr) -> Iterator[Scan]:
        """Those of an inner query, unless it takes only so many rows."""
        inner = query
        while isinstance(inner, exp.Subquery):
            inner = inner.this
        if not inner.args.get("limit"):
            yield from self._live(query)
