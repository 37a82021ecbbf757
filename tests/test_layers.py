"""Who may import whom, downward only.

    tools        what is run
    operators    operators/spark alone imports pyspark, and operators/duckdb alone opens DuckDB
    matwin       its __init__.py imports nothing of the package: names are strings, resolved lazily
    scheduler
    storage      storage/env.py alone imports lmdb

The sources are parsed, not run, so an import inside a function or under TYPE_CHECKING counts too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = ["storage", "scheduler", "matwin", "operators", "tools"]  # bottom to top
FRONT_DOOR = PurePosixPath("matwin/__init__.py")

# third-party module -> the places that may import it; benchmarks measure DuckDB as users open it
RESERVED = {
    "duckdb": (PurePosixPath("operators/duckdb"), PurePosixPath("tools/bench")),
    "lmdb": (PurePosixPath("storage/env.py"),),
    "pyspark": (PurePosixPath("operators/spark"),),
}


def package_of(path: PurePosixPath) -> list[str]:
    """The package that relative imports in this file start from, as installed."""
    folders = list(path.parts[:-1])
    if folders[:2] == ["operators", "spark"]:
        return ["matwin", *folders[1:]]
    return folders if folders[0] == "matwin" else ["matwin", *folders]


def imported_names(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                start = package[: len(package) - node.level + 1] if node.level else []
                origin = [*start, *([node.module] if node.module else [])]
                yield from ((node.lineno, ".".join([*origin, a.name])) for a in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def layer_of(name: str) -> str | None:
    """The layer that a dotted import name belongs to; None for third parties."""
    match name.split("."):
        case ["matwin", second, *_] if second in LAYERS:
            return second
        case ["matwin", "spark", *_]:  # operators/spark is installed under the users' name for it
            return "operators"
        case ["matwin", *_]:
            return "matwin"
        case _:
            return None


def violations(path: PurePosixPath, source: str) -> list[str]:
    """What is wrong with the imports of one file, given by its path in the repository."""
    here = path.parts[0]
    found = []
    for line, name in imported_names(ast.parse(source), package_of(path)):
        top = name.split(".")[0]
        target = layer_of(name)
        where = f"{path}:{line}: "
        if top in LAYERS and top != "matwin":
            found.append(f"{where}imports {name} instead of matwin.{name}")
        elif target is not None and path == FRONT_DOOR:
            found.append(f"{where}the front door imports {name}")
        elif target is not None and LAYERS.index(target) > LAYERS.index(here):
            found.append(f"{where}{here} imports {name}, which is above it")
        elif top in RESERVED and not any(map(path.is_relative_to, RESERVED[top])):
            found.append(f"{where}imports {top}, reserved for {RESERVED[top][0]}")
    return found


def test_every_import_points_down() -> None:
    found = []
    for layer in LAYERS:
        files = sorted((ROOT / layer).rglob("*.py"))
        assert files, f"no sources in {layer}"
        for file in files:
            path = PurePosixPath(file.relative_to(ROOT).as_posix())
            found += violations(path, file.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_duckdb_is_opened_in_one_place() -> None:
    """With its limit, its folder and its locks; benchmarks measure it as users open it."""
    opened = [
        file.relative_to(ROOT).as_posix()
        for layer in LAYERS
        for file in sorted((ROOT / layer).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "connect"
        and "duckdb" in ast.unparse(node.value)
        and not file.is_relative_to(ROOT / "tools" / "bench")
    ]
    assert opened == ["operators/duckdb/door.py"]


def test_tests_import_installed_names() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in imported_names(ast.parse(file.read_text(encoding="utf-8")), [])
        if name.split(".")[0] in {*LAYERS} - {"matwin"}
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("storage/pool.py", "import matwin.scheduler.reach", "above it"),
        ("storage/pool.py", "from matwin.operators import epsilon", "above it"),
        ("storage/pool.py", "from matwin import tools", "above it"),
        ("storage/pool.py", "import matwin", "above it"),
        ("storage/pool.py", "from matwin import InputError", "above it"),
        ("storage/pool.py", "from ..scheduler import reach", "above it"),
        ("storage/materialize/slab.py", "from ...scheduler import reach", "above it"),
        ("storage/pool.py", "def f():\n    import matwin.tools.cli", "above it"),
        ("storage/pool.py", "import_module('matwin.tools.cli')", "above it"),
        ("storage/pool.py", "importlib.import_module('matwin.tools.cli')", "above it"),
        ("scheduler/walk.py", "import matwin.bestmatch", "above it"),
        ("matwin/bestmatch.py", "from .operators import kernels", "above it"),
        ("operators/epsilon.py", "from matwin.tools import verify", "above it"),
        ("operators/spark/task.py", "from matwin.tools import verify", "above it"),
        ("matwin/bestmatch.py", "import matwin.spark", "above it"),
        ("matwin/bestmatch.py", "from . import spark", "above it"),
        ("matwin/__init__.py", "from matwin.storage.errors import InputError", "front door"),
        ("matwin/__init__.py", "from . import bestmatch", "front door"),
        ("tools/cli.py", "import storage.errors", "instead of matwin.storage"),
        ("tools/cli.py", "from tools import demo", "instead of matwin.tools"),
        ("operators/epsilon.py", "import duckdb", "reserved for operators/duckdb"),
        ("operators/epsilon.py", "from pyspark.sql import Row", "reserved for operators/spark"),
        ("tools/verify.py", "import pyspark", "reserved for operators/spark"),
        ("storage/pagefile.py", "import lmdb", "reserved for storage/env.py"),
    ],
)
def test_a_violation_is_reported(path: str, source: str, complaint: str) -> None:
    (message,) = violations(PurePosixPath(path), source)
    assert complaint in message
    assert message.startswith(f"{path}:{source.count(chr(10)) + 1}: ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("storage/env.py", "import lmdb"),
        ("storage/pool.py", "from matwin.storage.errors import StoreError"),
        ("storage/materialize/slab.py", "from ..errors import StoreError"),
        ("storage/pool.py", "import numpy, pyarrow.compute"),
        ("scheduler/walk.py", "from matwin.storage.pool import Pool"),
        ("matwin/bestmatch.py", "from matwin import orders"),
        ("matwin/__init__.py", "from importlib import import_module"),
        ("operators/spark/joins.py", "from pyspark.sql import DataFrame"),
        ("operators/spark/joins.py", "from .plan import Plan"),
        ("operators/spark/joins.py", "from matwin.operators.epsilon import epsilon_join"),
        ("tools/join.py", "import matwin.spark"),
        ("tools/bench/rivals.py", "import duckdb, matwin.operators.epsilon"),
    ],
)
def test_what_is_allowed_is_not_reported(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source) == []
