"""The words that bring a join to Spark: ``--engine spark`` and what goes with it.

    matwin join 'rooms/*.parquet' table:hum --on t=10min --engine spark --master spark://host:7077

What is asked is said in the same words as without Spark.  What belongs to one process is refused,
and so are Spark's words without it; each refusal says what to do instead.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from types import ModuleType

from matwin.storage.errors import InputError

_SPARKS = ("master", "conf", "strips", "ship", "order_by")
_REFUSED = {
    "trace": "a trace belongs to one process; trace a part of the data without --engine spark",
    "verify": "DuckDB asks files in one process; run `matwin verify` with the same words on a part "
    "of the data",
    "sql": "it prints SQL for DuckDB, which Spark has no part in; leave out --engine spark",
    "follow": "Spark joins what is complete here; leave out --follow, or --engine spark",
    "schema": "Spark infers the columns of JSON lines; leave it out",
    "max_delay": "it is for streams that grow; leave it out",
}


def check_engine(args: argparse.Namespace) -> bool:
    """Whether the join runs on Spark; refuses words that don't go with the engine."""
    is_spark: bool = args.engine == "spark"
    if not is_spark:
        for name in _SPARKS:
            if getattr(args, name, None) not in (None, False):
                raise InputError(f"--{_word(name)} goes with --engine spark")
        return False
    for name, why in _REFUSED.items():
        if getattr(args, name, None):
            raise InputError(f"--{_word(name)} does not go with --engine spark: {why}")
    return True


def _word(name: str) -> str:
    return name.replace("_", "-")


def spark_module(name: str) -> ModuleType:
    """A module that needs Spark; an `InputError` where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise InputError(
            "--engine spark needs PySpark, which is not installed; pip install 'matwin[spark]' "
            "brings it, and Java 17 or later is needed too"
        ) from e
