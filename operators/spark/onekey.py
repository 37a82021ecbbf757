"""The rows of a strip of one key must have one key: looked at where they arrive.

A frequent key is known by the hash of its values.  For most joins it is no matter if another key
has the same hash: rows go to the same parts and meet nobody.  Where only the nearest row beyond a
bound goes along (`matwin.scheduler.layout`), one key's would stand for the other's, and a match
would be lost.  No two keys in a billion are likely to do that, but wrong rows are never right.

A strip has all rows of its own and the nearest one beyond, so two keys meet in some strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.errors import InputError


@dataclass(frozen=True)
class OneKey:
    """The side whose rows must agree in its keys, in all parts from `first` on."""

    first: int
    side: int
    columns: tuple[str, ...]

    def checked(self, key: pa.Table | None, rows: pa.Table) -> pa.Table:
        """The key of the rows, which is the same as before."""
        found = rows.select(self.columns)
        key = found.slice(0, 1) if key is None else key
        for column, value in zip(found.columns, key.columns, strict=True):
            if not pc.all(pc.equal(column, value[0])).as_py():
                raise InputError(
                    "two frequent keys have the same hash, so that their rows can't be told apart "
                    "where they are divided; give strips=1, or change the keys"
                )
        return key
