"""The front door of the storage engine: a page file, a pool over it, and windows on both.

>>> schema = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("name", pa.string())])
>>> with Store(memory="8MiB", page_size="64KiB") as store:
...     window = store.window("left", schema, on={"t": 10, "x": 0.5})
...     window.append(pa.record_batch({"t": [1, 5, 9], "x": [.1, .2, .3], "name": list("abc")}))
...     window.expire(below=5)
...     [batch.to_pydict()["name"] for batch in window.scan()]
[['b', 'c']]

Without a path the store is scratch: nothing is written while the windows fit the memory, and
nothing is left behind.  With a path, `commit` makes everything since the last commit one step, and
opening the path again goes on after the last step that was completed.

Several threads may use a store: the calls on it and on its windows run one after the other, each of
them whole.  A step has no thread: `commit` covers every call, of whichever thread, that returned
before it.  After a fork the store is the parent's; the child meets a `StoreError`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from .errors import InputError
from .grid import Grid
from .lanes import Lanes
from .layout import PageId
from .manifest import pack_states, unpack_states
from .materialize import FORMS, StandardWindow, Window, WindowState
from .materialize.choose import ARRIVALS, choose
from .names import listed
from .pagefile import LmdbPageFile, PageFile
from .pool import BufferPool
from .replacer import Replacer
from .sort import SortedRows
from .trace import NoTrace, Trace, TraceFile
from .turns import in_turn
from .units import Counts, Tolerance, parse_size


class Store:
    """Windows over one page file, inside one memory budget."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        memory: int | str = "64MiB",
        page_size: int | str = "256KiB",
        durability: str | None = None,
        scratch: str | Path | None = None,
        trace: str | Path | None = None,
        file: PageFile | None = None,
        replacer: Replacer | None = None,
    ) -> None:
        self._trace: Trace = NoTrace()
        self.file = file or LmdbPageFile(
            Path(path) if path is not None else None,
            page_size=parse_size(page_size),
            durability=durability,
            scratch=Path(scratch) if scratch is not None else None,
        )
        self._windows: dict[str, tuple[int, Window]] = {}
        self._numbers = itertools.count()
        self.notes = b""
        """What the caller has given to the last commit."""
        try:
            budget = parse_size(memory)
            if trace is not None:
                settings = {
                    "page_size": str(self.file.page_size),
                    "budget_bytes": str(budget),
                    "file": self.file.where,
                }
                self._trace = TraceFile(Path(trace), settings)
            self.pool = BufferPool(
                self.file, budget_bytes=budget, replacer=replacer, trace=self._trace
            )
            self._turn = self.pool.turn
            self._saved = self._recovered() if path is not None or file is not None else {}
        except BaseException:
            self.file.close()
            self._trace.close()
            raise

    def _recovered(self) -> dict[str, tuple[int, WindowState]]:
        complete = self.file.completed()
        step, state = complete or (0, b"")
        states, self.notes = unpack_states(state, self.file.where, self.file.page_size)
        self.file.recover(ref.page_id for _, state in states.values() for ref in state.refs)
        self.pool.epoch = step
        used = [number for number, _ in states.values()]
        self._numbers = itertools.count(max(used, default=-1) + 1)
        return states

    @property
    def step(self) -> int:
        """The number of the last completed step, 0 before the first."""
        return self.pool.epoch

    @property
    def saved(self) -> list[str]:
        """Windows of the last completed step that have not been opened again."""
        return list(self._saved)

    def saved_schema(self, name: str) -> pa.Schema:
        """The columns of such a window."""
        return self._saved[name][1].schema

    @in_turn
    def window(
        self,
        name: str,
        schema: pa.Schema,
        *,
        on: Mapping[str, Tolerance | Counts],
        by: str | Sequence[str] | None = None,
        materialize: str = "auto",
        arrival: str = "sorted",
        live_pages: int | None = None,
        step_pages: int | None = None,
        step_cells: int | None = None,
    ) -> Window:
        """A new window, or the one of that name from the last completed step.

        `on` gives each join attribute its ε, the order attribute first; `by` names equality keys.
        `materialize` is ``"standard"``, ``"grid"``, ``"slab"`` or ``"auto"``, which decides by
        `arrival`: ``"sorted"``, ``"late"`` (nearly sorted) or ``"unsorted"``.  For unsorted rows it
        helps to say how many pages the window has, and how many pages and cells a step brings.
        """
        if not isinstance(name, str):
            raise InputError(f"a window's name is text, not {name!r}")
        if name in self._windows:
            raise InputError(f"the store has a window {name!r} already")
        grid = Grid.of(schema, on, by)
        number, saved = self._saved.get(name) or (None, None)
        if saved is not None and saved.schema != schema:
            raise InputError(
                f"window {name!r} was kept with other columns: {listed(saved.schema.names)}"
            )
        if saved is not None and saved.grid != repr(grid):
            raise InputError(f"window {name!r} was kept with another grid: {saved.grid}")
        if saved and materialize == "auto":
            form, reason = saved.form, "as it was kept"
        else:
            form, reason = _chosen(materialize, arrival, live_pages, step_pages, step_cells)
        if saved is not None and saved.form != form:
            raise InputError(f"window {name!r} was kept as {saved.form!r}, not {form!r}")
        number = next(self._numbers) if number is None else number
        window = FORMS[form](self.pool, number, name, schema, grid, reason)
        if saved is not None:
            del self._saved[name]
            window.restore(saved)
        self._windows[name] = (number, window)
        self.pool.note("choose", name, f"{form}: {reason}")
        return window

    def sort(
        self,
        source: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        *,
        on: Mapping[str, Tolerance | Counts] | str,
        by: str | Sequence[str] | None = None,
    ) -> SortedRows:
        """The source in order: by one column when `on` is its name, else in ε-Grid-Order."""
        grid = Grid.of(schema, {on: None} if isinstance(on, str) else on, by)
        number = next(self._numbers)
        window = StandardWindow(self.pool, number, f"sort {number}", schema, grid, "sort")
        return SortedRows(window, source)

    def lanes(self, name: str, schema: pa.Schema) -> Lanes:
        """Rows to be put down by lane and taken back once; they are in no step."""
        return Lanes(self.pool, next(self._numbers), name, schema)

    @in_turn
    def drop(self, name: str) -> None:
        """Give up a window and its pages."""
        if name in self._saved:
            _, state = self._saved.pop(name)
            self.file.free(ref.page_id for ref in state.refs)
            return
        if name not in self._windows:
            raise InputError(f"the store has no window {name!r}; it has {list(self._windows)}")
        _, window = self._windows.pop(name)
        window.close()

    @in_turn
    def commit(self, notes: bytes = b"", *, why: str = "") -> int:
        """Make everything since the last commit one completed step; returns its number.

        `notes` are the caller's own; they are kept with the step (`Store.notes`).  `why` is for the
        trace.
        """
        states = {name: (number, w.state()) for name, (number, w) in self._windows.items()}
        self.pool.flush("commit")
        self.pool.epoch = self.file.complete(pack_states({**self._saved, **states}, notes))
        self.notes = notes
        self.pool.note("complete", "", f"step {self.pool.epoch}" + (f": {why}" if why else ""))
        return self.pool.epoch

    @in_turn
    def check(self) -> None:
        """Raise `AssertionError` unless every invariant holds."""
        self.pool.check()
        for _, window in self._windows.values():
            window.check()

    @in_turn
    def page_ids(self) -> list[PageId]:
        """The names of all windows' pages."""
        return [page for _, window in self._windows.values() for page in window.page_ids()]

    def close(self) -> None:
        """Close the files.  What was not committed is gone."""
        if not self._turn.is_inherited:
            with self._turn:
                self._close()

    def _close(self) -> None:
        self.pool.close()
        self.file.close()
        self._trace.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chosen(materialize: str, arrival: str, *sizes: int | None) -> tuple[str, str]:
    if arrival not in ARRIVALS:
        raise InputError(f"arrival={arrival!r}; choose one of {ARRIVALS}")
    if materialize == "auto":
        live_pages, step_pages, step_cells = sizes
        choice = choose(
            arrival, live_pages=live_pages, step_pages=step_pages, step_cells=step_cells
        )
        return choice.form, choice.reason
    if materialize not in FORMS:
        raise InputError(f"materialize={materialize!r}; choose one of {('auto', *FORMS)}")
    return materialize, "asked for"
