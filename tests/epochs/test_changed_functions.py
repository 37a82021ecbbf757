"""Functions in a continuous query: a changed one is another question, a moved one is the same.

Every form a function comes in (an order, a `where`, a query, a method, …) by every way it may
differ from the one that made the state.  Each is written to a file of its own and imported, because
bytecode, line numbers and addresses are what must not matter.
"""

from __future__ import annotations

import importlib.util
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import matwin
from matwin.operators.epochs import functions
from matwin.operators.epochs.functions import code_of

FORMS = {
    "lambda": "made = lambda a, b, w=DEFAULT: (a - b) * w + BODY",
    "two lambdas on a line": "made = [lambda a: a + BODY, lambda a, w=DEFAULT: a * w]",
    "function": '''
def made(a, b=DEFAULT):
    """Documented."""
    return a + b + BODY
''',
    "keyword default": "def made(a, *, b=DEFAULT):\n    return a + b + BODY",
    "nested": '''
def outer(weight):
    def inner(a):
        return a * weight + BODY
    return inner
made = outer(DEFAULT)
''',
    "closure over a function": '''
def outer(weight):
    def score(a):
        return a * weight + BODY
    def inner(a):
        return score(a)
    return inner
made = outer(DEFAULT)
''',
    "a function of the module": '''
def score(a, w=DEFAULT):
    return a * w + BODY
def made(a):
    return score(a)
''',
    "partial": '''
from functools import partial
def score(a, w):
    return a * w + BODY
made = partial(score, w=DEFAULT)
''',
    "method": '''
class Scorer:
    def __init__(self, weight):
        self.weight, self.calls = weight, 0
    def score(self, a):
        self.calls += 1
        return a * self.weight + BODY
made = Scorer(DEFAULT).score
''',
    "object that is called": '''
class Scorer:
    def __init__(self, weight):
        self.weight = weight
    def __call__(self, a):
        return a * self.weight + BODY
made = Scorer(DEFAULT)
''',
    "decorated": '''
import functools
def twice(function):
    @functools.wraps(function)
    def inner(*args):
        return 2 * function(*args)
    return inner
@twice
def made(a, b=DEFAULT):
    return a + b + BODY
''',
    "cached": '''
import functools
@functools.lru_cache
def made(a, b=DEFAULT):
    return a + b + BODY
''',
    "table": '''
import pyarrow as pa
def outer(known):
    def inner(a):
        return known, BODY
    return inner
made = outer(pa.table({"a": [DEFAULT, 3]}))
''',
    "in a dict": "made = {'cost': lambda a, b: a + BODY, 'x': DEFAULT}",
}  # fmt: skip
CHANGES: dict[str, tuple[str, str]] = {"body": ("BODY", "9"), "value": ("DEFAULT", "7")}
MOVES = {
    "further down": lambda text: "# a comment\n\n\nunused = 1\n" + text,
    "formatted": lambda text: text.replace(" + ", "  +  ").replace("    ", "        "),
    "documented": lambda text: text.replace("Documented", "Documented otherwise"),
}  # fmt: skip


def module(folder: Path, name: str, text: str) -> ModuleType:
    file = folder / f"{name}.py"
    file.write_text(text.replace("BODY", "1").replace("DEFAULT", "2"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_what_is_another_function_and_what_is_the_same(form: str, tmp_path: Path) -> None:
    text = FORMS[form]
    first = code_of(module(tmp_path, "first", text).made)
    assert first is not None
    for change, (place, value) in CHANGES.items():
        changed = code_of(module(tmp_path, change, text.replace(place, value)).made)
        assert changed != first, (form, change)
    for move, moved in MOVES.items():
        again = module(tmp_path, move.replace(" ", "_"), moved(text)).made
        assert code_of(again) == first, (form, move)


def test_what_a_function_changes_itself_is_not_compared() -> None:
    def made() -> Any:
        seen: list[int] = []
        calls = 0

        def look(windows: Any) -> int:
            nonlocal calls
            calls += 1
            seen.append(calls)
            return calls

        return look

    before, after = made(), made()
    after(None)
    assert code_of(before) == code_of(after)


def test_without_source_it_is_known_by_name_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "_told_once", set())
    known: dict[str, Any] = {}
    exec("def typed(a): return a", known)
    with pytest.warns(UserWarning, match="typed: its source can't be read"):
        assert code_of(known["typed"]) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code_of(known["typed"]) is None
        assert code_of([len, "text", 3]) is None  # nothing that could change


ROWS = pa.table({"t": range(40), "k": [n % 3 for n in range(40)], "cost": range(40)})


def query(state: Path, made: Any, kind: str) -> Any:
    both = (matwin.chunks("a"), matwin.chunks("a"))
    asked = {
        "orders": partial(matwin.bestmatch_join, *both, on={"t": 3, "cost": 5},
                          orders={"cost": made}),
        "where": partial(matwin.window_join, {"x": both[0], "y": both[1]}, time="t", windows=3,
                         by="k", where={("x.cost", "y.cost"): made}),
        "query": made,
    }[kind]  # fmt: skip
    return matwin.continuous_query(asked, {"a": ROWS}, cut=matwin.cut.count(10), state=state)


BODIES = {
    "orders": ("lambda a, b: a + b", "lambda a, b: a - b"),
    "where": ("lambda a, b: a < b", "lambda a, b: a <= b"),
    "query": ("lambda windows: windows.newest('a').to_arrow()",
              "lambda windows: windows.newest('a').to_arrow().slice(1)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
def test_a_state_of_another_function_is_refused(kind: str, tmp_path: Path) -> None:
    before, after = (f"made = {text}" for text in BODIES[kind])
    running = query(tmp_path / "s", module(tmp_path, "before", before).made, kind)
    for epoch in running:
        if epoch.id == 2:
            running.stop()
    with pytest.raises(matwin.InputError, match=rf"code of {kind} was .*lambda .* and is .*lambda"):
        query(tmp_path / "s", module(tmp_path, "after", after).made, kind)
    moved = module(tmp_path, "moved", "\n\n\n" + before.replace(": ", ":    ", 1)).made
    assert query(tmp_path / "s", moved, kind).run().epoch == 4


def test_a_state_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    """It has the names of functions alone."""
    made = module(tmp_path, "before", f"made = {BODIES['query'][0]}").made
    running = query(tmp_path / "s", made, "query")
    running._asked.pop("code of query")
    for epoch in running:
        if epoch.id == 2:
            running.stop()
    assert query(tmp_path / "s", made, "query").run().epoch == 4
