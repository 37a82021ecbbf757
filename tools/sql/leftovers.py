"""What typesetting leaves in a query, read as it was meant.

    ‘CUT ON ts BY 60 SECS’       'CUT ON ts BY 60 SECS'     quotes of a book
    R as r', … r'.y1             R as r′, … r′.y1           a prime
    h1.host-id AS from-host      "host-id", "from-host"     a name with a hyphen
    scf1.caller#                 "caller#"                  a name with a sharp
    $t_s$, $S.t_s$, = $w_1$      t_s, S.t_s, = w_1          the dollars of LaTeX
    STREAM_x(s, 'CUT …')) S      STREAM_x(s, 'CUT …') S     a bracket too many

All of them are printed in the papers.  Hyphens and sharps are read so only where nothing stands
between the signs, and the whole is a column of a source or a name that the query gives (`AS
from-host`): `a-b` stays a difference of `a` and `b` everywhere else.  Dollars are LaTeX's where
DuckDB's quotes `$$…$$` and `$tag$…$tag$` are not meant: the second `$tag$` is missing, and the name
has an index, a point or one letter; or it is the length of a window, which DuckDB does not have.

Beside them, words that sqlglot takes for the beginning of something else: a column called `map`,
`insert` or `rollup`, and `table t` in the place of `from t`.

Invariant: no character moves, so that places in the text stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from sqlglot.tokenizer_core import Token, TokenType

PRIME = "\u2032"
_PRIMED = re.compile(r"\b([A-Za-z_]\w*)'\s*\.\s*[A-Za-z_]")
_PARTS = re.compile(
    r"(?P<keep>--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<head>\bd?window\s*(?:\([^()]*\))?\s*=\s*)\$(?P<length>[a-z_]\w*)\$"
    r"|\$(?P<tag>[a-z_]\w*|)\$.*?\$(?P=tag)\$"
    r"|\$(?P<math>[a-z]|[a-z]\w*_\w+|[a-z]\w*[./*+-][\w./*+-]*)\$"
    r"|‘(?P<single>[^’\n]*)’|“(?P<double>[^”\n]*)”"
    r"|\b(?P<name>[A-Za-z_]\w*)'(?=[\s.,);=<>!]|$)",
    re.DOTALL | re.IGNORECASE,
)
_WORD = re.compile(r"\w+")


def plain_signs(text: str) -> str:
    """The text with the signs of a keyboard, each in its place."""
    if text.startswith("\ufeff"):  # a mark that some editors put before a file
        text = f" {text[1:]}"
    if not any(sign in text for sign in "‘“'$"):
        return text
    primed = set(_PRIMED.findall(text))

    def plain(found: re.Match[str]) -> str:
        if found["single"] is not None:
            return "'" + found["single"].replace("'", PRIME) + "'"
        if found["double"] is not None:
            return '"' + found["double"].replace('"', PRIME) + '"'
        if found["name"] is not None and found["name"] in primed:
            return found["name"] + PRIME
        if found["length"] is not None:
            return f"{found['head']} {found['length']} "
        if found["math"] is not None:
            return f" {found['math']} "
        return found[0]

    return _PARTS.sub(plain, text)


def tidied(tokens: list[Token], columns: Callable[[], Collection[str]]) -> list[Token]:
    """The tokens with names put together, a bracket too many left out, and plain words as such.

    `columns` is asked for the columns of all sources only where there is a doubt.
    """
    return _with_plain_words(_without_surplus(_with_whole_names(tokens, columns)))


def _with_plain_words(tokens: list[Token]) -> list[Token]:
    """Words as names where what they would begin can't be."""
    found = []
    around = zip([None, *tokens], tokens, [*tokens[1:], None], strict=False)
    for before, token, after in around:
        if _is_plain(before, token, after):
            found.append(_as(TokenType.IDENTIFIER, token))
        elif _begins_query(before, token, after):
            found.append(_as(TokenType.FROM, token, "from"))
        else:
            found.append(token)
    return found


def _is_plain(before: Token | None, token: Token, after: Token | None) -> bool:
    kind = token.token_type
    if kind in _FIRST:
        return before is not None and before.token_type != TokenType.SEMICOLON
    return kind in _OPENED and (after is None or after.token_type not in _OPENED[kind])


def _begins_query(before: Token | None, token: Token, after: Token | None) -> bool:
    """Whether a token is the first of `table t`."""
    if token.token_type != TokenType.TABLE or after is None:
        return False
    is_name = after.token_type == TokenType.IDENTIFIER or _WORD.fullmatch(after.text) is not None
    return is_name and (before is None or before.token_type in _QUERY_AFTER)


def _as(kind: TokenType, token: Token, text: str | None = None) -> Token:
    return Token(kind, text or token.text, token.line, token.col, token.start, token.end)


_FIRST = (TokenType.INSERT, TokenType.INSTALL)
"""Words that begin statements, and are names everywhere else."""
_OPENED = {
    TokenType.MAP: (TokenType.L_PAREN, TokenType.L_BRACE, TokenType.LT),
    TokenType.CUBE: (TokenType.L_PAREN,),
    TokenType.ROLLUP: (TokenType.L_PAREN,),
}
"""Words that are something else than a name only before a bracket."""
_QUERY_AFTER = (
    TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.UNION, TokenType.EXCEPT,
    TokenType.INTERSECT, TokenType.ALL,
)  # fmt: skip


def _with_whole_names(tokens: list[Token], columns: Callable[[], Collection[str]]) -> list[Token]:
    stretches = [_stretch(tokens, at) for at in range(len(tokens))]
    if not any(stretches):
        return tokens
    known = {name.lower() for name in columns()} | {
        _joined(tokens, at, length)
        for at, length in enumerate(stretches)
        if length and at and tokens[at - 1].token_type == TokenType.ALIAS
    }
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        length = stretches[at]
        while length and _joined(tokens, at, length) not in known:
            length -= 1
        if length:
            found.append(_one(tokens, at, length))
            at += length + 1
        else:
            found.append(tokens[at])
            at += 1
    return found


def _stretch(tokens: list[Token], at: int) -> int:
    """How many tokens after this one hang together with it by hyphens and sharps."""
    length = 0
    if not _WORD.fullmatch(tokens[at].text) or tokens[at].token_type == TokenType.STRING:
        return 0
    while at + length + 1 < len(tokens):
        last, coming = tokens[at + length], tokens[at + length + 1]
        if last.end + 1 != coming.start or coming.token_type == TokenType.STRING:
            break
        is_sign = coming.token_type in (TokenType.DASH, TokenType.HASH)
        is_word = bool(_WORD.fullmatch(coming.text)) and last.token_type == TokenType.DASH
        if not is_sign and not is_word:
            break
        length += 1
    return length


def _joined(tokens: list[Token], at: int, length: int) -> str:
    return "".join(token.text for token in tokens[at : at + length + 1]).lower()


def _one(tokens: list[Token], at: int, length: int) -> Token:
    parts = tokens[at : at + length + 1]
    text = "".join(token.text for token in parts)
    first, last = parts[0], parts[-1]
    return Token(TokenType.IDENTIFIER, text, first.line, last.col, first.start, last.end)


def _without_surplus(tokens: list[Token]) -> list[Token]:
    """Without the bracket that closes a stream function a second time."""
    count = sum(
        (token.token_type == TokenType.R_PAREN) - (token.token_type == TokenType.L_PAREN)
        for token in tokens
    )
    found = list(tokens)
    for at in range(len(tokens) - 1, 0, -1):
        if count > 0 and _closes_stream_twice(tokens, at):
            del found[at]
            count -= 1
    return found


def _closes_stream_twice(tokens: list[Token], at: int) -> bool:
    both = tokens[at - 1 : at + 1]
    if not all(token.token_type == TokenType.R_PAREN for token in both):
        return False
    depth = 0
    for place in range(at - 1, 0, -1):
        kind = tokens[place].token_type
        depth += (kind == TokenType.R_PAREN) - (kind == TokenType.L_PAREN)
        if depth == 0:
            return tokens[place - 1].text.lower().startswith("stream")
    return False
