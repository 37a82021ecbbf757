"""A plain installation joins without DuckDB, isal, Spark, pandas or Polars; what needs one names
the extra that brings it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_child

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{{missing}}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""
ALL = ("duckdb", "isal", "pandas", "polars", "pyspark", "scipy", "matplotlib")
JOIN = """
import pyarrow as pa, matwin
a = pa.table({"t": list(range(1000)), "v": [0.5] * 1000})
assert matwin.bestmatch_join(a, a, on={"t": 1}).to_arrow().num_rows == 1000
assert matwin.epsilon_join(a, a, on={"t": 0}, materialize="slab", memory="8MiB",
                           page_size="4KiB").to_arrow().num_rows == 1000
w = matwin.window_join({"a": a, "b": a}, time="t", windows={("a", "b"): (0, 0)}).to_arrow()
assert w.num_rows == 1000
"""
COMMAND = "from matwin.tools.cli import main; sys.exit(main(sys.argv[1:]))"


def without(*missing: str) -> str:
    return WITHOUT.format(missing=", ".join(map(repr, missing)))


def test_joins_need_no_extra() -> None:
    child = run_child(without(*ALL) + JOIN)
    assert child.returncode == 0, child.stderr


def test_the_command_needs_no_extra(tmp_path: Path) -> None:
    left = tmp_path / "left.csv"
    left.write_text("t,v\n1,a\n2,b\n")
    child = run_child(without(*ALL) + COMMAND, "join", left, left, "--on", "t=1", "-o", "-")
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("library", "words", "extra"),
    [
        ("duckdb", ["join", "{}", "{}", "--on", "t=1", "--verify"], "matwin[duckdb]"),
        ("duckdb", ["bench", "epsilon", "--quick"], "matwin[duckdb]"),
        ("pyspark", ["join", "{}", "{}", "--on", "t=1", "--engine", "spark"], "matwin[spark]"),
    ],
)
def test_what_is_missing_is_named(
    library: str, words: list[str], extra: str, tmp_path: Path
) -> None:
    left = tmp_path / "left.csv"
    left.write_text("t,v\n1,a\n2,b\n")
    child = run_child(without(library) + COMMAND, *[w.format(left) for w in words])
    assert child.returncode == 2, child.stderr
    assert extra in child.stderr and "Traceback" not in child.stderr, child.stderr


def test_checksums_are_the_same() -> None:
    from zlib import crc32 as zlibs

    from matwin.storage.checksum import crc32

    assert crc32(b"a page of bytes") == zlibs(b"a page of bytes")
