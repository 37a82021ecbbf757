"""A state folder: what a continuous query was when it last committed an epoch.

    state/pages/     a page file: the chunks, and with each commit these notes:
                         what is asked     to be compared at a restart
                         epoch, chunk      the last that was committed
                         streams           where reading goes on
                         output            the result that this epoch has put down
    state/results/   results that are not delivered yet

One commit is one transaction of the page file; everything else is written before it and counts only
because the commit names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matwin.storage.env import DATA
from matwin.storage.errors import CorruptPage, InputError
from matwin.storage.inherit import page_size_of
from matwin.storage.scratch import os_errors, private_folder, sync_names
from matwin.storage.store import Store

VERSION = 1
PAGES, RESULTS = "pages", "results"
CODE = "code of "
"""What is asked in functions; compared only where both sides have their source."""


@dataclass(slots=True)
class Notes:
    """What is committed with an epoch, besides the chunks."""

    asked: dict[str, str]
    epoch: int = 0
    chunk: int | None = None
    bounds: str = ""
    streams: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] | None = None
    user: dict[str, Any] = field(default_factory=dict)
    rows_in: int = 0
    rows_out: int = 0
    version: int = VERSION

    def packed(self) -> bytes:
        """As bytes."""
        try:
            return json.dumps(asdict(self), allow_nan=False).encode()
        except (TypeError, ValueError) as e:
            raise InputError(
                f"windows.notes holds what JSON can't ({e}); keep text, numbers, lists and dicts"
            ) from e

    @classmethod
    def unpacked(cls, data: bytes, where: str) -> Notes | None:
        """From bytes; None where nothing was committed."""
        if not data:
            return None
        try:
            found = json.loads(data)
            version = found["version"]
            if version == VERSION:
                return cls(**found)
        except (ValueError, KeyError, TypeError) as e:
            raise CorruptPage(
                f"{where}: the notes of the last epoch can't be read ({e}); restore the folder"
            ) from e
        raise InputError(
            f"{where} has state of version {version}, this is version {VERSION}; open it with the "
            "release that wrote it, or name another folder"
        )

    def check_asked(self, asked: Mapping[str, str], where: str) -> None:
        """Refuse the state of another question, and say what differs."""
        names = sorted({*self.asked, *asked})
        other = [n for n in names if self.asked.get(n) != asked.get(n)]
        both = [*self.asked.keys() & asked.keys()]
        other = [n for n in other if not n.startswith(CODE) or n in both]
        if other:
            said = "; ".join(
                f"{n} was {self.asked.get(n, 'not given')} and is {asked.get(n, 'not given')}"
                for n in other
            )
            raise InputError(
                f"{where} is the state of another query: {said}; ask as before, or name another "
                "folder"
            )


def stored_page_size(path: str | Path) -> int | None:
    """The page size of the store that is in a state folder; None where there is none yet."""
    pages = Path(path).expanduser() / PAGES
    with os_errors(pages):
        return page_size_of(pages) if (pages / DATA).exists() else None


class StateFolder:
    """The folder of one query, open in one process."""

    def __init__(
        self, path: str | Path, *, memory: int, page_size: int, trace: str | Path | None
    ) -> None:
        self.path = Path(path).expanduser()
        private_folder(self.path)
        private_folder(self.path / RESULTS)
        with os_errors(self.path):
            sync_names(self.path)
        self.store = Store(
            self.path / PAGES, memory=memory, page_size=page_size, durability="epoch", trace=trace
        )
        try:
            self.notes = Notes.unpacked(self.store.notes, str(self.path))
        except BaseException:
            self.store.close()
            raise

    def result_path(self, epoch: int) -> Path:
        """Where the result of an epoch is put down."""
        return self.path / RESULTS / f"epoch-{epoch:08d}.arrow"

    def commit(self, notes: Notes) -> None:
        """The epoch has happened, or its result has been taken; what older ones have left is
        removed."""
        packed = notes.packed()
        is_new = self.notes is None or notes.epoch != self.notes.epoch
        self.store.commit(packed, why=f"epoch {notes.epoch}" if is_new else "delivered")
        # As a restart would find them: a tuple is a list now, and every key is text.
        notes.user = json.loads(packed)["user"]
        self.notes = notes
        self.sweep()

    def sweep(self) -> None:
        """Remove results that the last commit does not name."""
        named = self.notes.output["epoch"] if self.notes and self.notes.output else None
        with os_errors(self.path / RESULTS):
            for path in (self.path / RESULTS).glob("epoch-*.arrow"):
                if named is None or path != self.result_path(named):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the folder."""
        self.store.close()
