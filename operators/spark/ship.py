"""A function that Spark can send to executors, also to one that lacks this package.

    driver: sent(task)  ──pickled by value──▶  executor: import matwin, or a clear error
            task        ──pickled apart────▶             unpickled once the import has worked

Spark pickles functions of a module by name, and an executor without the module fails inside of
Spark, before anything of ours could explain it.  A function made inside of another is pickled whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

Body = Callable[[Iterable[Any]], Iterator[Any]]


def sent(task: Any) -> Body:
    """``task.run`` as a function for `mapInArrow`."""
    packed = cloudpickle.dumps(task)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import sys

        try:
            importlib.import_module("matwin.spark.task")
        except ImportError as e:
            raise RuntimeError(
                f"this executor's Python ({sys.executable}) can't import matwin "
                f"({e}); install it there, or send it along with spark.archives or --py-files "
                "(docs/SPARK.md)"
            ) from e
        from pyspark import cloudpickle

        yield from cloudpickle.loads(packed).run(batches)

    return run
