"""A function that Spark can send to executors, also to one that lacks this package.

    driver: sent(task)  ──pickled by value──▶  executor: import matwin, or a clear error
            task        ──pickled apart────▶             unpickled once the import has worked

Spark pickles functions of a module by name, and an executor without the module fails inside of
Spark, before anything of ours could explain it.  A function inside of another is pickled whole.
For the same reason it can use nothing of this module: all that it needs stands in it.

Numba keeps what it has compiled beside the sources.  Sources in a zip (``--py-files``) have no such
place, so they are unpacked beside it first, once for all workers of an executor; and where neither
the package nor the user has a folder to write to, the executor's own folder serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

Body = Callable[[Iterable[Any]], Iterator[Any]]


def sent(task: Any) -> Body:
    """``task.run`` as a function for `mapInArrow`."""
    packed: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]

    def unpacked(archive: str) -> str:
        """The folder with an archive's modules, beside it; whoever is first makes it."""
        import shutil
        import tempfile
        import zipfile
        from pathlib import Path

        folder = Path(f"{archive}.unpacked")
        if not folder.is_dir():
            made = tempfile.mkdtemp(prefix="matwin-", dir=folder.parent)
            with zipfile.ZipFile(archive) as modules:
                modules.extractall(made)
            try:
                Path(made).rename(folder)
            except OSError:  # another worker was first
                shutil.rmtree(made, ignore_errors=True)
        return str(folder)

    def settled() -> None:
        """See to it that Numba has a place for what it compiles."""
        import importlib
        import importlib.util
        import os
        import sys
        from pathlib import Path

        found = importlib.util.find_spec("matwin")
        if found is None or "matwin" in sys.modules:
            return
        archive = getattr(found.loader, "archive", None)
        if archive is not None:
            sys.path.insert(0, unpacked(archive))
            importlib.invalidate_caches()
            return
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        places = (Path(found.origin or "").parent, os.environ.get("HOME", ""))
        if local and not any(os.access(place, os.W_OK) for place in places if place):
            os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(local) / "matwin-numba"))

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import sys

        try:
            settled()
            importlib.import_module("matwin.spark.task")
        except ImportError as e:
            raise RuntimeError(
                f"this executor's Python ({sys.executable}) can't import matwin ({e}); install it "
                "there, or send it along with spark.archives or --py-files (docs/SPARK.md)"
            ) from e
        from pyspark import cloudpickle

        try:
            task = cloudpickle.loads(packed)
        except Exception as e:
            raise RuntimeError(
                f"what the join needs can't be unpacked by this executor's Python "
                f"({type(e).__name__}: {e}); a function of a module of yours needs that module "
                "here too: send it with --py-files, or define the function where the join is called"
            ) from e
        yield from task.run(batches)

    return run
