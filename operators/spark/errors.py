"""Failures in executors, told on the driver in a line of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from matwin.storage.errors import InputError

_LACKING = re.compile(r"this executor's Python .*?\(docs/SPARK\.md\)", re.DOTALL)


@contextmanager
def explained(operator: str) -> Iterator[None]:
    """Turn the failure of an executor that lacks this package into an `InputError`."""
    try:
        yield
    except PySparkException as e:
        found = _LACKING.search(str(e))
        if found is None:
            raise
        raise InputError(f"{operator}: {found[0]}") from e
