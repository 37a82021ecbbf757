"""The grammar: DuckDB's, and what the papers add to it.

    from R [left | right | full [outer]] bestmatch join S
         on R.y1 order1 S.y1, R.y2 order2 S.y2 [using (keys)]        order left out: mindist
    … [d]window (a, b) = '5s' and [d]window (b, c) = '3s' [or …]      before or after `where`, or
                                                                      among its conditions
    … window = '1h'                                                   every pair
    from stream_name(source, 'CUT ON ts BY 60 SECS', 'BLOCK', 12) s   a table function, as it is

A bestmatch join is a `Join` of kind BESTMATCH whose `on` is a list of `Term`s; the windows of a
select are its argument `WINDOWS`.  Everything else is sqlglot's own tree, which `selects.py` takes
apart.  Nodes know the stretch of text that they come from (`span_of`), because what DuckDB runs is
the user's own text with some stretches replaced: sqlglot's generator would drop the clock of
`interval '1 day 02:00'`, and who knows what else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from .errors import Place, SqlError, not_a_query, parse_failure, place_of, wrong
from .leftovers import plain_signs, tidied
from .statements import open_stretch

WINDOWS = "matwin_windows"
"""The argument of a select that holds its windows."""
BESTMATCH = "BESTMATCH"
SPAN, RAW = "span", "raw"
"""Notes at nodes: the stretch of text they come from; an interval's text as it stands."""
LENGTH_MAX = 1_000_000
DEPTH_MAX = 200
"""Brackets within brackets; the parser calls itself for each."""
Tree = exp.Query | exp.Values
_COMPARED = frozenset({
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
    TokenType.BETWEEN, TokenType.IS, TokenType.IN, TokenType.LIKE,
})  # fmt: skip
_RECKONED = frozenset({
    TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.DIV, TokenType.MOD,
    TokenType.DCOLON, TokenType.DPIPE,
})  # fmt: skip
WINDOWS_STAND = (
    "windows stand in a clause of their own, or among the conditions of where that all hold: "
    "where … window (a, b) = '5s' and window (b, c) = '3s'"
)


class Terms(exp.Expression):
    """The join attributes of a bestmatch join."""

    arg_types: ClassVar = {"expressions": True}


class Term(exp.Expression):
    """One attribute: `this` of the left, `expression` of the right, `order` between them."""

    arg_types: ClassVar = {"this": True, "expression": False, "order": False}


class Windows(exp.Expression):
    """Alternatives, each a list of windows that all hold."""

    arg_types: ClassVar = {"expressions": True}


class All(exp.Expression):
    """Windows that all hold."""

    arg_types: ClassVar = {"expressions": True}


class Window(exp.Expression):
    """``window (a, b) = this``; without `streams` it is for every pair."""

    arg_types: ClassVar = {"this": True, "streams": False, "directed": False}


class MatWin(DuckDB):
    """DuckDB's dialect with the papers' forms."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS: ClassVar = ['"', "`"]  # Spark's too
        KEYWORDS: ClassVar = {
            **DuckDB.Tokenizer.KEYWORDS,
            # A token of its own, so that neither word becomes the alias of the table before it.
            # Token types can't be added; nothing in DuckDB's grammar has this one.
            "BESTMATCH JOIN": TokenType.STRAIGHT_JOIN,
            "DWINDOW": TokenType.WINDOW,
        }

    class Parser(DuckDBParser):
        TABLE_ALIAS_TOKENS = DuckDBParser.TABLE_ALIAS_TOKENS - {TokenType.STRAIGHT_JOIN}
        # `on t limit 1` has no order called limit.
        ORDER_TOKENS = TABLE_ALIAS_TOKENS - {TokenType.LIMIT, TokenType.OFFSET}
        QUERY_MODIFIER_PARSERS: ClassVar = {
            **DuckDBParser.QUERY_MODIFIER_PARSERS,
            TokenType.WINDOW: lambda self: self._parse_either_window(),
        }

        def _spanned(self, parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            """What `parse` gives, with the stretch of text that it has read."""
            start = self._curr.start if self._curr else None
            node = parse(*args, **kwargs)
            if isinstance(node, exp.Expr) and start is not None and self._prev:
                node.meta[SPAN] = Place(start, self._prev.end)
            return node

        def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(self._parse_any_join, *args, **kwargs)

        def _parse_any_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
            return self._parse_bestmatch() or super()._parse_join(*args, **kwargs)

        def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_table, *args, **kwargs)

        def _parse_from(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_from, *args, **kwargs)

        def _parse_where(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_where, *args, **kwargs)

        def _parse_cte(self) -> Any:
            return self._spanned(super()._parse_cte)

        def _parse_statement(self) -> Any:
            return self._spanned(super()._parse_statement)

        def _parse_wrapped_select(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_wrapped_select, *args, **kwargs)

        def _parse_equality(self, *args: Any, **kwargs: Any) -> Any:
            if self._is_join_window():
                return self._spanned(self._parse_join_window)
            return self._spanned(super()._parse_equality, *args, **kwargs)

        def _parse_disjunction(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_disjunction, *args, **kwargs)

        def _parse_expression(self) -> Any:
            return self._spanned(super()._parse_expression)

        def _parse_ordered(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_ordered, *args, **kwargs)

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
            return self._spanned(super()._parse_function_call, *args, **kwargs)

        def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
            # sqlglot leaves out what it does not understand of '1 day 02:00'.
            text = self._next.text if self._next.token_type == TokenType.STRING else None
            node = super()._parse_interval(*args, **kwargs)
            if isinstance(node, exp.Interval) and text is not None:
                node.meta[RAW] = text
            return node

        def _warn_unsupported(self) -> None:
            """Say nothing: what is no query is refused in our own words."""

        def _parse_bestmatch(self) -> exp.Join | None:
            index = self._index
            side = self._prev.text.upper() if self._match_set(self.JOIN_SIDES) else None
            self._match(TokenType.OUTER if side else TokenType.INNER)
            if not self._match(TokenType.STRAIGHT_JOIN):
                self._retreat(index)
                return None
            at = self._prev
            table = self._parse_table()
            if not self._match(TokenType.ON):
                self.raise_error("a bestmatch join says what is near: on R.t mindist S.t")
            terms = self._parse_bestmatch_terms()
            is_sample = self._next.text.upper() == "SAMPLE"  # using sample 10 rows
            using = None
            if not is_sample and self._match(TokenType.USING):
                using = self._parse_using_identifiers()
            join = exp.Join(this=table, side=side, kind=BESTMATCH, on=terms, using=using)
            join.meta.update(start=at.start, end=at.end)
            return join

        def _parse_bestmatch_terms(self) -> Terms:
            is_wrapped = self._match(TokenType.L_PAREN)
            terms = Terms(expressions=self._parse_csv(self._parse_bestmatch_term))
            kind = self._curr.token_type
            if kind in (TokenType.AND, TokenType.OR):
                self.raise_error(
                    "attributes are separated by commas, and conditions stand in the where "
                    "clause: on R.t mindist S.t, R.x mindist S.x where …"
                )
            if kind in _COMPARED:
                self.raise_error(
                    "a bestmatch join is on attributes: on R.t mindist S.t; conditions stand in "
                    "the where clause, equality keys also in using (key)"
                )
            if kind in _RECKONED:
                self.raise_error(
                    "a join attribute is a column; what is computed comes from a subquery: from "
                    "(select t + 1 as t from R) R bestmatch join …"
                )
            if is_wrapped:
                self._match_r_paren()
            return terms

        def _parse_bestmatch_term(self) -> Term | None:
            left = self._parse_column()
            if left is None:
                self.raise_error("name a join attribute here: R.t mindist S.t")
            word = self._parse_id_var(any_token=False, tokens=self.ORDER_TOKENS)
            if word is None:
                return Term(this=left)
            if self._match(TokenType.DOT):  # on R.t S.t: no order between them
                return Term(this=left, expression=exp.Column(this=self._parse_id_var(), table=word))
            right = self._parse_column()
            if right is None:
                return Term(this=left, expression=exp.Column(this=word))
            return Term(this=left, order=word, expression=right)

        def _is_join_window(self) -> bool:
            if self._curr.token_type != TokenType.WINDOW:
                return False
            is_bare = self._curr.text.upper() == "WINDOW" and self._next.token_type == TokenType.EQ
            return is_bare or self._next.token_type == TokenType.L_PAREN

        def _parse_either_window(self) -> tuple[str, Any]:
            if self._next.token_type in (TokenType.EQ, TokenType.L_PAREN):
                return WINDOWS, self._spanned(self._parse_join_windows)
            return "windows", self._parse_window_clause()

        def _parse_join_windows(self) -> Windows:
            alternatives = [All(expressions=[self._parse_join_window()])]
            while self._match_set((TokenType.AND, TokenType.OR)) or self._match_window_comma():
                if self._prev.token_type == TokenType.OR:
                    alternatives.append(All(expressions=[]))
                alternatives[-1].append("expressions", self._parse_join_window())
            return Windows(expressions=alternatives)

        def _match_window_comma(self) -> bool:
            is_one = self._curr.token_type == TokenType.COMMA
            is_one = is_one and self._next.token_type == TokenType.WINDOW
            return is_one and bool(self._match(TokenType.COMMA))

        def _parse_join_window(self) -> Window:
            if not self._match(TokenType.WINDOW):
                self.raise_error(
                    "a window comes here: window (a, b) = '5s'; other conditions stand in the "
                    "where clause"
                )
            word = self._prev
            streams = None
            if self._match(TokenType.L_PAREN):
                streams = self._parse_csv(self._parse_column)
                self._match_r_paren()
            if not self._match(TokenType.EQ):
                self.raise_error("a window has a length: window (a, b) = '5s'")
            length = self._parse_bitwise()
            if length is None:
                self.raise_error("a window has a length: window (a, b) = '5s'")
            is_directed = word.text.upper() == "DWINDOW"
            window = Window(this=length, streams=streams, directed=is_directed)
            window.meta.update(start=word.start, end=word.end)
            return window


@dataclass(frozen=True, slots=True)
class Parsed:
    """A query: its tree, its text with plain signs, and names that are to be quoted in it."""

    tree: Tree
    text: str
    names: tuple[tuple[Place, str], ...]


def span_of(node: exp.Expr) -> Place:
    """The stretch of text that a node comes from."""
    place = node.meta.get(SPAN) or place_of(node)
    assert place is not None, node
    return place


def parsed(text: str, columns: Callable[[], Collection[str]] = tuple) -> Parsed:
    """One query; `columns` are those of all sources (see `leftovers.py`)."""
    if len(text) > LENGTH_MAX:
        raise SqlError(f"the query has {len(text):,} characters; the most is {LENGTH_MAX:,}")
    if "\0" in text:
        raise wrong(text, "a query can't hold the character NUL", _at(text, "\0"))
    dialect = MatWin()
    plain = plain_signs(text)
    try:
        given = dialect.tokenize(plain)
        tokens = tidied(given, columns)
        _check_depth(text, tokens)
        plain = _begun_with_from(plain, tokens)
        found = dialect.parser().parse(tokens, plain)
    except TokenError:
        raise _not_closed(text) from None
    except ParseError as error:
        raise parse_failure(text, error) from None
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
    # A comment behind the semicolon is a statement to sqlglot.
    statements = [one for one in found if one is not None and not isinstance(one, exp.Semicolon)]
    tree = _one_query(text, statements)
    for select in tree.find_all(exp.Select):
        _straighten(select, plain)
    names = [*_corrections(given, tokens), *_gathered(text, tree)]
    return Parsed(tree, plain, tuple(names))


def _not_closed(text: str) -> SqlError:
    """What is wrong with a text that has no tokens: something is opened and not closed."""
    found = open_stretch(text)
    if found is None:
        return SqlError("this can't be read as SQL")
    message = f"this can't be read as SQL: the {found.kind} that begins here has no end"
    return wrong(text, message, Place(found.start, found.start))


def _begun_with_from(text: str, tokens: list[Token]) -> str:
    """The text with `from t` for `table t`, which is as long."""
    for token in tokens:
        is_table = token.token_type == TokenType.FROM and token.end - token.start == 4
        if is_table:
            text = f"{text[: token.start]}from {text[token.end + 1 :]}"
    return text


def _gathered(text: str, tree: Tree) -> Iterator[tuple[Place, str]]:
    """Make the windows among the conditions of a select its clause; `true` stands for them."""
    for window in list(tree.find_all(Window)):
        if isinstance(window.parent, All):
            continue
        clause = window.parent
        while isinstance(clause, exp.And | exp.Paren):
            clause = clause.parent
        if not isinstance(clause, exp.Where) or clause.parent is None:
            raise wrong(text, WINDOWS_STAND, window)
        select = clause.parent
        _take_out(window)
        windows = select.args.get(WINDOWS)
        if windows is None:
            windows = Windows(expressions=[All(expressions=[])])
            windows.meta[SPAN] = span_of(window)
            select.set(WINDOWS, windows)
        windows.expressions[0].append("expressions", window)
        yield span_of(window), "true"


def _take_out(node: exp.Expr) -> None:
    """Take a condition out of those that all hold."""
    above = node.parent
    if isinstance(above, exp.And):
        above.replace(above.right if above.left is node else above.left)
    elif isinstance(above, exp.Paren):
        _take_out(above)
    elif above is not None:
        above.pop()


def _straighten(select: exp.Select, text: str) -> None:
    """Make a select that begins with `from` look like any other: the joins are its own."""
    clause = select.args.get("from_")
    if clause is None:
        return
    first = clause.this
    joins = first.args.get("joins") if isinstance(first, exp.Table | exp.Subquery) else None
    if joins and SPAN in first.meta:
        first.meta[SPAN] = Place(span_of(first).start, span_of(joins[0]).start - 1)
        first.set("joins", None)
        select.set("joins", [*joins, *(select.args.get("joins") or [])])
    if SPAN not in clause.meta and SPAN in first.meta:
        start = text.lower().rfind("from", 0, span_of(first).start)
        clause.meta[SPAN] = Place(start, span_of(first).end)


def _corrections(given: list[Token], tokens: list[Token]) -> Iterator[tuple[Place, str]]:
    """What must be written otherwise for DuckDB: names put together, brackets left out."""
    if given == tokens:
        return
    kept = {token.start: token for token in tokens}
    covered = -1
    for token in given:
        now = kept.get(token.start)
        if token.start <= covered:
            continue
        if now is None:
            yield Place(token.start, token.end), ""
        elif now.end != token.end:
            covered = now.end
            yield Place(now.start, now.end), quoted(now.text)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _at(text: str, sign: str) -> Place:
    return Place(text.index(sign), text.index(sign))


def _check_depth(text: str, tokens: list[Any]) -> None:
    depth = 0
    for token in tokens:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
        if depth > DEPTH_MAX:
            message = f"more than {DEPTH_MAX} brackets within each other"
            raise wrong(text, message, Place(token.start, token.end))


def _one_query(text: str, statements: list[exp.Expr]) -> Tree:
    if not statements:
        raise SqlError("there is no query here; write: select … from …")
    if len(statements) > 1:
        raise wrong(text, "one query at a time; here begins another", span_of(statements[1]))
    query = statements[0]
    inner = query
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if not isinstance(inner, exp.Query | exp.Values) or not isinstance(query, Tree):
        raise not_a_query(text, span_of(query), is_expression=isinstance(query, exp.Condition))
    return query
