"""Texts as Parquet has them: a length of four bytes, then the text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

Int: TypeAlias = Any


@kernel
def longest(data: npt.NDArray[np.uint8]) -> int:
    """The bytes of the longest text; at most all of them, whatever a length says."""
    at: Int = 0
    most: Int = 0
    while at + 4 <= len(data):
        length: Int = 0
        for i in range(4):
            length |= np.int64(data[at + i]) << (8 * i)
        if length > most:
            most = length
        at += 4 + length
    held: int = min(most, len(data))
    return held
