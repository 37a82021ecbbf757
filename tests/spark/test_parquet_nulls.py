"""Parquet files of Spark, whose columns are required and optional, are read, and a bit that turns
the one into the other is refused or changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import matwin


def joined(path: Path) -> list[str]:
    found = matwin.epsilon_join(str(path), str(path), on={"t": 0}, memory="32MiB").to_arrow()
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["PARQUET_1_0", "PARQUET_2_0"])
@pytest.mark.parametrize("has_dictionary", ["true", "false"])
def test_flips(spark: Any, tmp_path: Path, codec: str, version: str, has_dictionary: str) -> None:
    from test_parquet_levels import flips

    frame = spark.range(40, numPartitions=1).selectExpr(
        "id div 2 as t", "id", "cast(id as int) as i", "concat('key ', id % 4) as key",
        "if(id % 5 = 0, null, id / 7) as x", "id % 3 = 0 as b", "1 as one",
    )  # fmt: skip
    assert {field.nullable for field in frame.schema} == {True, False}
    options = {"parquet.writer.version": version, "parquet.enable.dictionary": has_dictionary}
    frame.write.options(**options).option("compression", codec).parquet(str(tmp_path / "made"))
    path = next((tmp_path / "made").glob("*.parquet"))
    wanted, tried = joined(path), 0
    assert len(wanted) == 80
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        tried += 1
        try:
            assert joined(path) == wanted
        except matwin.MatwinError as e:
            assert str(path) in str(e) or "'t' is list" in str(e)
    assert tried > 5
