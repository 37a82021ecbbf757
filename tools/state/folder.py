"""A state folder, opened to be looked at.

    FOLDER/pages      the page file: chunks by stream, and the notes of the last commit
    FOLDER/results    the result that was committed last, as long as it may not be delivered

Nothing is changed but who has the folder; a query that runs has it for itself, which is a named
error.  What was written after the last commit belongs to nobody and goes, as it would at the next
start of the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from matwin.operators.epochs.chunks import CHUNK, ChunkWindow
from matwin.operators.epochs.durable import PAGES, RESULTS, Notes
from matwin.storage.errors import InputError
from matwin.storage.inherit import page_size_of
from matwin.storage.store import Store

MEMORY = 64 * 2**20
_ALL = 2**62


@dataclass(frozen=True, slots=True)
class State:
    """What is committed."""

    path: Path
    store: Store
    notes: Notes
    windows: dict[str, ChunkWindow]

    def result_path(self, epoch: int) -> Path:
        """Where the result of an epoch was put down."""
        return self.path / RESULTS / f"epoch-{epoch:08d}.arrow"

    def window(self, name: str) -> ChunkWindow:
        """The chunks of a stream."""
        if name not in self.windows:
            from matwin.hints import did_you_mean

            raise InputError(
                f"{self.path} has no stream {name!r}{did_you_mean(name, self.windows)}; it has "
                f"{', '.join(self.windows)}"
            )
        return self.windows[name]


@contextmanager
def opened(folder: str) -> Iterator[State]:
    """The state of a folder."""
    path = Path(folder).expanduser()
    pages = path / PAGES
    if not (pages / "data.mdb").is_file():
        there = "there is no such folder" if not path.exists() else "no query keeps its state there"
        raise InputError(
            f"{folder}: {there}; name the folder that continuous_query has as state= (it has "
            f"{PAGES}/data.mdb)"
        )
    size = page_size_of(pages)
    with Store(pages, memory=max(MEMORY, 16 * size), page_size=size) as store:
        notes = Notes.unpacked(store.notes, folder)
        if notes is None:
            raise InputError(f"{folder}: no epoch has been committed there yet; there is nothing")
        yield State(path, store, notes, _windows(store))


def _windows(store: Store) -> dict[str, ChunkWindow]:
    """The chunks of each stream; nothing expires here, so all are kept."""
    found = {}
    for name in store.saved:
        schema = store.saved_schema(name)
        if CHUNK in schema.names:
            own = pa.schema([field for field in schema if field.name != CHUNK])
            found[name] = ChunkWindow(store, name, own, _ALL, MEMORY)
    return found
