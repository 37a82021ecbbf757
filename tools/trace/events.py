"""A trace as arrays: one a column, names as numbers, and no Python for single events.

    seq  event  window    page  frame  …          kind  window  page  identity  …
      0  make   readings     0      0               0       0     0         0
      1  read   weather      7      1      ──▶      2       1     7         2
      2  hit    readings     0      0               3       0     0         0

Nothing in the file is trusted: a trace may have been written by another program, or by somebody who
means harm.  What can be shown is shown.  `walks.py` finds the walks over pairs of pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.errors import InputError, StoreError
from matwin.storage.trace import EVENTS, read_trace
from matwin.text import escaped, quoted

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

KIND = {name: number for number, name in enumerate(EVENTS)}
UNKNOWN = -1
NOBODY = -1


@dataclass(frozen=True, eq=False)
class Events:
    """The columns of a trace.  Windows are numbers into `names`, kinds numbers into `EVENTS`.

    An event's *place* is its row; `seq` is what the file calls it.
    """

    table: pa.Table
    source: str = "the trace"

    @classmethod
    def open(cls, path: str | Path) -> Events:
        """The events of a trace file, whole and checked; `StoreError` for any other file."""
        shown = escaped(str(path))
        try:
            table = read_trace(Path(path))
            table.validate(full=True)
        except StoreError as e:
            raise StoreError(escaped(str(e))) from e
        except (pa.ArrowException, ValueError, MemoryError) as e:
            raise StoreError(f"{shown} is a damaged trace: {escaped(str(e))}") from e
        return cls(table, shown)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def settings(self) -> dict[str, str]:
        """What the file's schema says: page_size, budget_bytes, file."""
        found = self.table.schema.metadata or {}
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in found.items()}

    def setting(self, name: str) -> int | None:
        """A setting that is a whole number; None where it is missing or is none."""
        text = self.settings.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @cached_property
    def seq(self) -> Int64s:
        """The number that the file gives each event."""
        return self._ints("seq")

    @cached_property
    def time_ns(self) -> Int64s:
        """When, since the trace began."""
        return self._ints("time_ns")

    @cached_property
    def page(self) -> Int64s:
        """The page's number in its window, -1 for none."""
        return self._ints("page")

    @cached_property
    def frame(self) -> Int64s:
        """The frame's number, -1 for none."""
        return self._ints("frame")

    @cached_property
    def size(self) -> Int64s:
        """Bytes of the page."""
        return self._ints("bytes")

    @cached_property
    def epoch(self) -> Int64s:
        """The last completed step."""
        return self._ints("epoch")

    @cached_property
    def mate_page(self) -> Int64s:
        """The other page's number, -1 for none."""
        return self._ints("mate_page")

    @cached_property
    def kind(self) -> Int64s:
        """What happened, as a number into `EVENTS`; UNKNOWN for a word that we don't know."""
        codes, words = _coded(self.table["event"])
        return np.array([KIND.get(word, UNKNOWN) for word in words] or [UNKNOWN])[codes]

    @cached_property
    def _windows(self) -> tuple[Int64s, Int64s, list[str]]:
        codes, names = _coded(self.table["window"])
        mates, mate_names = _coded(self.table["mate_window"])
        every = list(dict.fromkeys([*names, *mate_names]))
        number = {name: at for at, name in enumerate(every)}
        lookup = np.array([number[name] for name in names] or [0])
        mate_lookup = np.array([number[name] for name in mate_names] or [0])
        return lookup[codes], mate_lookup[mates], every

    @property
    def window(self) -> Int64s:
        """The page's window, as a number into `names`."""
        return self._windows[0]

    @property
    def mate_window(self) -> Int64s:
        """The other page's window, as a number into `names`."""
        return self._windows[1]

    @property
    def names(self) -> list[str]:
        """The windows' names, as they are: escape them before they are shown."""
        return self._windows[2]

    def why(self, place: int) -> str:
        """The reason of one event."""
        return self.table["why"][place].as_py() or ""

    def whys(self, places: Int64s | Bools) -> list[str]:
        """The reasons of some events."""
        places = np.flatnonzero(places) if places.dtype == np.bool_ else places
        found = self.table["why"].take(pa.array(places))
        return [text or "" for text in found.to_pylist()]

    def of_kind(self, *kinds: str) -> Bools:
        """Which events are of these kinds."""
        mask: Bools = self.kind == KIND[kinds[0]]
        for kind in kinds[1:]:
            mask |= self.kind == KIND[kind]
        return mask

    def places_of(self, *kinds: str) -> Int64s:
        """Where the events of these kinds are."""
        return np.flatnonzero(self.of_kind(*kinds))

    @cached_property
    def identity(self) -> Int64s:
        """A number for each (window, page): the same page, the same number; NOBODY without a page.

        Numbers count up in the order of window and page; `identities` tells them back.
        """
        return self._identified[0]

    @cached_property
    def mate_identity(self) -> Int64s:
        """The same for mates."""
        return self._identified[1]

    @cached_property
    def identities(self) -> tuple[Int64s, Int64s]:
        """The window and the page of each identity."""
        return self._identified[2], self._identified[3]

    @cached_property
    def _identified(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        windows = np.concatenate((self.window, self.mate_window))
        pages = np.concatenate((self.page, self.mate_page))
        has_page = pages >= 0
        numbers, at = np.unique(pages[has_page], return_inverse=True)
        keys = windows[has_page] * max(len(numbers), 1) + at
        found, identity = np.unique(keys, return_inverse=True)
        every = np.full(len(pages), NOBODY)
        every[has_page] = identity
        count = len(self)
        return (
            every[:count],
            every[count:],
            found // max(len(numbers), 1),
            numbers[found % max(len(numbers), 1)] if len(numbers) else np.zeros(0, np.int64),
        )

    @cached_property
    def is_reread(self) -> Bools:
        """Which events are reads of a page that was read before in this trace.

        That is the meaning of a re-read everywhere: reads beyond the first read of the page.  A
        page that was made here and left its frame has its first read when it comes back.
        """
        mask = np.zeros(len(self), bool)
        reads = self.places_of("read")
        _, first = np.unique(self.identity[reads], return_index=True)
        mask[reads] = True
        mask[reads[first]] = False
        return mask

    def window_number(self, name: str) -> int:
        """The window with this name, or whose name is shown like this."""
        for at, found in enumerate(self.names):
            if found == name:
                return at
        for at, found in enumerate(self.names):
            if escaped(found) == name:
                return at
        known = ", ".join(quoted(n) for n in self.names if n) or "none"
        raise InputError(f"{self.source} has no window {quoted(name)}; its windows are {known}")

    def _ints(self, name: str) -> Int64s:
        column = self.table[name]
        if column.null_count:
            column = pc.fill_null(column, -1)
        values = column.to_numpy() if column.num_chunks else np.zeros(0)
        return values.astype(np.int64, copy=False)


def paired(begun: Int64s, ended: Int64s, key: Int64s) -> tuple[Int64s, Int64s]:
    """Where something began and ended: places of the same key, one right after the other.

    >>> key = np.array([7, 8, 7, 8, 7])
    >>> [places.tolist() for places in paired(np.array([0, 1, 4]), np.array([2, 3]), key)]
    [[0, 1], [2, 3]]
    """
    places = np.concatenate((begun, ended))
    order = np.lexsort((places, key[places]))
    places, is_begin = places[order], order < len(begun)
    is_pair = is_begin[:-1] & ~is_begin[1:] & (key[places[:-1]] == key[places[1:]])
    return places[:-1][is_pair], places[1:][is_pair]


def _coded(column: pa.ChunkedArray) -> tuple[Int64s, list[str]]:
    """A dictionary column as numbers and the words that they mean; null is the empty word."""
    if not len(column):
        return np.zeros(0, np.int64), []
    merged = column.unify_dictionaries().combine_chunks()
    chunks = merged.chunks if isinstance(merged, pa.ChunkedArray) else [merged]
    words = [word or "" for word in chunks[0].dictionary.to_pylist()]
    indices = [pc.fill_null(chunk.indices, len(words)).to_numpy() for chunk in chunks]
    return np.concatenate(indices).astype(np.int64), [*words, ""]
