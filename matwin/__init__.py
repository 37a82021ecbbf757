"""MatWin: joins over windows that are larger than memory.

This module is the front door. It names what is public and imports none of it: a name is looked up
in a table of strings and its module is loaded at first use (PEP 562).

    import matwin              nothing heavy is loaded
    matwin.InputError   ──►    table  ──►  import matwin.storage.errors  ──►  kept in this module

Invariants: no module of the package is imported here at load time, so any layer may import its
siblings through the package without a loop; `__init__.pyi` says the same names to type checkers.
"""

import os
from importlib import import_module

# In a checkout the other folders are next to this one, and Python finds this one first where it is
# started there, whatever is installed.  Installed, they are inside, and nothing is added.
_HERE = os.path.dirname(__file__)  # noqa: PTH120  (pathlib takes 5 ms to import)
if not os.path.isdir(os.path.join(_HERE, "storage")):  # noqa: PTH112, PTH118
    _ABOVE = os.path.dirname(_HERE)  # noqa: PTH120
    __path__ += [_ABOVE, os.path.join(_ABOVE, "operators")]  # noqa: PTH118  (of matwin.spark)

# public name -> module that defines it
_NAMES = {
    "GridOrdered": "matwin.streams",
    "Lateness": "matwin.streams",
    "Punctuated": "matwin.streams",
    "Punctuation": "matwin.streams",
    "ReadAhead": "matwin.streams",
    "Report": "matwin.report",
    "Result": "matwin.result",
    "Sorted": "matwin.streams",
    "asof_join": "matwin.asof",
    "bestmatch_join": "matwin.bestmatch",
    "captured": "matwin.calls",
    "chunks": "matwin.operators.epochs.query",
    "connect": "matwin.peers",
    "continuous_query": "matwin.tools.continuous",
    "explain_join": "matwin.operators.explain",
    "explain_window_join": "matwin.operators.explain",
    "fixed_window_join": "matwin.fixed",
    "epsilon_join": "matwin.operators.epsilon",
    "listen": "matwin.peers",
    "min_distance": "matwin.orders",
    "minimize": "matwin.orders",
    "nonzero": "matwin.bounds",
    "partial_order": "matwin.orders",
    "path": "matwin.operators.wjoin.constraints",
    "register": "matwin.tools.sql.catalog",
    "replayable": "matwin.calls",
    "spark_sql": "matwin.tools.sql.front",
    "sql": "matwin.tools.sql.front",
    "stream": "matwin.streams",
    "strict": "matwin.bounds",
    "subset": "matwin.orders",
    "tail": "matwin.tailing",
    "then": "matwin.operators.wjoin.constraints",
    "unregister": "matwin.tools.sql.catalog",
    "verify": "matwin.tools.verify",
    "verify_window_join": "matwin.tools.verify_window",
    "window_join": "matwin.operators.wjoin.join",
    "youngest": "matwin.orders",
    "BudgetError": "matwin.storage.errors",
    "CorruptPage": "matwin.storage.errors",
    "InputError": "matwin.storage.errors",
    "JoinOptions": "matwin.options",
    "MatwinError": "matwin.storage.errors",
    "OrderError": "matwin.storage.errors",
    "StoreError": "matwin.storage.errors",
}

# public attribute -> module that it is
_MODULES = {
    "cut": "matwin.operators.epochs.cut",
    "scheduler": "matwin.scheduler",
    "spark": "matwin.spark",
    "storage": "matwin.storage",
}

__all__ = sorted([*_NAMES, *_MODULES])


def __getattr__(name: str) -> object:
    if name in _NAMES:
        value: object = getattr(import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name == "__version__":
        # importlib.metadata alone costs more than the rest of this import.
        value = import_module("importlib.metadata").version("matwin")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
