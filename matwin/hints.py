"""What somebody may have meant: the nearest name, and how words of other libraries are said here.

    "Celsius", ["t", "celsius"]     (did you mean 'celsius'?)
    tolerance=, --tolerance         the tolerance stands beside its column: on={"t": "10min"}

People come from `pandas.merge_asof`, Polars' `join_asof` and DuckDB.  A word that one of them has
and a join here does not is answered with the way to say it, in Python and on the command line.

Nothing heavy is imported: the command line asks before it loads Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# difflib takes quadratic time, and names out of a file may be as long as anybody likes.
LENGTH_MAX = 64
CLOSE = 0.6


class Said(NamedTuple):
    """How something is said here: in Python, and on the command line."""

    python: str
    words: str


_ASOF = Said(
    "an as-of join has it: matwin.asof_join(left, right, on='t', direction='backward'); elsewhere "
    "limits of right - left say it, such as on={'t': ('-10min', '0s')} for backward",
    "`matwin asof` has it: matwin asof LEFT RIGHT --on t --direction backward; elsewhere limits of "
    "right - left say it, such as --on t=-10min..0s for backward",
)
_TOLERANCE = Said(
    "each column has its own in on=, such as on={'t': '10min', 'x': 0.5}; only "
    "matwin.asof_join has tolerance=, for its one column",
    "each column has its own, such as --on t=10min --on x=0.5; only `matwin asof` has --tolerance, "
    "for its one column",
)
_ON = Said(
    "a pair in on= names both columns, such as on={('t', 'ts'): '10min'}, or on=('t', 'ts') of "
    "matwin.asof_join",
    "--on names both columns, such as --on t:ts=10min, or --on t:ts of `matwin asof`",
)
_BY = Said(
    "equality keys are by=, such as by='room', or by=[('room', 'raum')] where names differ",
    "equality keys are --by, such as --by room, or --by room:raum where names differ",
)
_EXACT = Said(
    "matwin.asof_join has it; elsewhere matwin.strict and matwin.nonzero in on= leave out equal "
    "values, such as on={'t': matwin.nonzero('10min')}",
    "`matwin asof` has it as --no-exact-matches",
)
_SUFFIXES = Said(
    "both suffixes are given, such as suffixes=('_left', '_right'); a window join calls its "
    "columns <stream>_<column>",
    "both suffixes are given, such as --suffixes _left,_right; a window join calls its columns "
    "<stream>_<column>",
)
_INDEX = Said(
    "join attributes are columns; call reset_index() and name the column in on=",
    "join attributes are columns; name one with --on",
)
_SORTED = Said(
    "inputs need no order, and none is checked; leave it out",
    "inputs need no order, and none is checked; leave it out",
)
_MEMORY = Said("the memory budget is memory='256MiB'", "the memory budget is --memory 256MiB")
_THREADS = Said("threads=4 says how many threads work", "--threads 4 says how many threads work")
_SCRATCH = Said(
    "scratch='/fast/disk' says where pages go that don't fit the memory",
    "--scratch /fast/disk says where pages go that don't fit the memory",
)
_ROWS = Said(
    "max_output_rows=1000 gives up beyond so many rows",
    "--max-output-rows 1000 gives up beyond so many rows",
)
_WINDOW = Said(
    "windows='1h' is for every pair, windows={('a', 'b'): '5s'} for one; it belongs to "
    "matwin.window_join",
    "--window 1h is for every pair, --window a,b=5s for one; it belongs to `matwin window-join`",
)
_PROGRESS = Said(
    "progress= takes a function that gets the report now and then",
    "a terminal shows progress by itself; -q leaves it out",
)
_OUTPUT = Said("the result has write('rows.parquet')", "-o FILE says where the rows go")
_ORDERS = Said("orders={'t': 'youngest'} says what is better", "--order t=youngest says it")
_DISTANCES = Said("distances=True adds the distances", "--distances adds the distances")

FOREIGN: dict[str, Said] = {
    "direction": _ASOF, "strategy": _ASOF, "asof": _ASOF,
    "tolerance": _TOLERANCE, "epsilon": _TOLERANCE, "eps": _TOLERANCE, "within": _TOLERANCE,
    "radius": _TOLERANCE, "max_distance": _TOLERANCE,
    "left_on": _ON, "right_on": _ON,
    "left_by": _BY, "right_by": _BY, "by_left": _BY, "by_right": _BY, "key": _BY, "keys": _BY,
    "group_by": _BY, "partition_by": _BY, "using": _BY,
    "allow_exact_matches": _EXACT, "exact": _EXACT,
    "suffix": _SUFFIXES, "suffixes": _SUFFIXES, "lsuffix": _SUFFIXES, "rsuffix": _SUFFIXES,
    "left_index": _INDEX, "right_index": _INDEX,
    "check_sortedness": _SORTED, "sort": _SORTED, "presorted": _SORTED,
    "memory_limit": _MEMORY, "max_memory": _MEMORY, "memory_budget": _MEMORY, "mem": _MEMORY,
    "n_jobs": _THREADS, "jobs": _THREADS, "num_threads": _THREADS, "workers": _THREADS,
    "parallelism": _THREADS,
    "temp_directory": _SCRATCH, "tmp_dir": _SCRATCH, "temp_dir": _SCRATCH, "spill_dir": _SCRATCH,
    "limit": _ROWS, "max_rows": _ROWS,
    "window": _WINDOW, "windows": _WINDOW,
    "verbose": _PROGRESS, "show_progress": _PROGRESS, "progress_bar": _PROGRESS,
    "order": _ORDERS, "distance": _DISTANCES, "add_distances": _DISTANCES,
    "out": _OUTPUT, "outfile": _OUTPUT, "output_file": _OUTPUT,
}  # fmt: skip

HOWS = {
    "asof": "an as-of join is matwin.asof_join, or `matwin asof`",
    "cross": "all pairs in reach are matwin.epsilon_join, or --pairs all",
    "outer": "that is how='full'", "full_outer": "that is how='full'",
    "fullouter": "that is how='full'",
    "leftouter": "that is how='left'", "left_outer": "that is how='left'",
    "rightouter": "that is how='right'", "right_outer": "that is how='right'",
    "leftsemi": "that is how='semi' of matwin.epsilon_join",
    "left_semi": "that is how='semi' of matwin.epsilon_join",
    "semi": "that is for matwin.epsilon_join, or --pairs all",
    "leftanti": "that is how='anti' of matwin.epsilon_join",
    "left_anti": "that is how='anti' of matwin.epsilon_join",
    "anti": "that is for matwin.epsilon_join, or --pairs all",
}  # fmt: skip


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant.

    >>> nearest("Celsius", ["t", "celsius"]), nearest("celcius", ["t", "celsius"])
    ('celsius', 'celsius')
    >>> nearest("x", ["t", "celsius"])
    """
    from difflib import get_close_matches

    if len(name) > LENGTH_MAX:
        return None
    known = {other.casefold(): other for other in names if len(other) <= LENGTH_MAX}
    folded = name.casefold()
    if folded in known:
        return known[folded]
    close = get_close_matches(folded, known, 1, CLOSE)
    return known[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question to put behind an unknown name, with a space before it; empty if none is near.

    >>> did_you_mean("rom", ["room", "t"]), did_you_mean("humidity", ["room", "t"])
    (" (did you mean 'room'?)", '')
    """
    found = nearest(name, names)
    return f" (did you mean {found!r}?)" if found is not None else ""


def how_hint(how: object) -> str:
    """What to say of a `how` that no join, or another one, has; with its separator before it."""
    said = HOWS.get(how.lower()) if isinstance(how, str) else None
    return f"; {said}" if said else ""


def unexpected(join: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for a keyword argument that a join does not have."""
    start = f"{join}() got an unexpected keyword argument {name!r}"
    known = list(known)
    if name in FOREIGN:
        return TypeError(f"{start}: {FOREIGN[name].python}")
    return TypeError(f"{start}{did_you_mean(name, known)}; the options are {', '.join(known)}")


def explains_words(join: Callable[P, R]) -> Callable[P, R]:
    """A join that answers words of other libraries.

    Python itself would first complain that ``on`` is missing, which is no help to somebody who
    wrote ``left_on=`` and ``right_on=``.
    """
    own = signature(join).parameters

    @wraps(join)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in FOREIGN and name not in own:
                raise unexpected(join.__name__, name, ())
        return join(*args, **kwargs)

    return asked
