"""Failures in executors, told on the driver in a line of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from matwin.storage.errors import InputError

LACKING = re.compile(r"this executor's Python .*?\(docs/SPARK\.md\)", re.DOTALL)
_WORKER = re.compile(r"in read_udfs\n.*?ModuleNotFoundError: (No module named '\w+')", re.DOTALL)


@contextmanager
def explained(operator: str) -> Iterator[None]:
    """Turn the failure of an executor that lacks what it needs into an `InputError`."""
    try:
        yield
    except PySparkException as e:
        lacking, worker = LACKING.search(str(e)), _WORKER.search(str(e))
        if lacking is not None:
            raise InputError(f"{operator}: {lacking[0]}") from e
        if worker is not None:
            raise InputError(
                f"{operator}: the executors run another Python than the driver, and it is not fit "
                f"for this join ({worker[1]}); name the one to use in PYSPARK_PYTHON before the "
                "session starts, for example os.environ['PYSPARK_PYTHON'] = sys.executable on one "
                "machine, or send one along (docs/SPARK.md)"
            ) from e
        raise
