"""`matwin join`, `asof` and `window-join` on Spark: words, files, summaries, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sparks import DRIVER_JAVA, cluster, needs_spark, same

import matwin
from matwin.operators.spark.files import read, written
from matwin.sinks import write
from matwin.sources import source_of
from matwin.storage.errors import InputError
from matwin.tools import spark_words
from matwin.tools.cli import main

MINUTE = 60_000_000
TEMP = pa.table(
    {
        "t": pa.array([0, 10 * MINUTE, 20 * MINUTE, None], pa.int64()).cast(pa.timestamp("us")),
        "room": ["a", "b", "a", "a"],
        "x": [0.1, 0.2, 0.3, 0.4],
    }
)
HUM = pa.table(
    {
        "ts": pa.array([MINUTE, 9 * MINUTE, 21 * MINUTE], pa.int64()).cast(pa.timestamp("us")),
        "room": ["a", "b", "b"],
        "x": [0.2, 0.3, 0.9],
        "percent": [40, 41, 42],
    }
)
ON = ["--on", "t:ts=10min"]
SPARK = ["--engine", "spark"]

pytestmark = [needs_spark, pytest.mark.spark]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two Parquet files."""
    paths = [tmp_path / "temp.parquet", tmp_path / "hum.parquet"]
    for path, table in zip(paths, (TEMP, HUM), strict=True):
        pq.write_table(table, path)
    return [str(path) for path in paths]


@pytest.fixture
def spark() -> Any:
    """The session of this process, which the command finds and leaves running."""
    return cluster()


def rows_of(folder: Path, kind: str = "parquet") -> pa.Table:
    """What Spark has written, without its marks."""
    return ds.dataset(str(folder), format=kind).to_table()


# ── text ─────────────────────────────────────────────────────────────────────────────────────


BROKEN = ["a\nb", "a\r\nb", '"\n"', "\n\n", '5" disk\n5"', 'a,"\t"\nb']


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
@pytest.mark.parametrize("text", [*BROKEN, 'no break, 5"'])
def test_line_breaks_in_quotes_are_of_the_text(
    tmp_path: Path, spark: Any, suffix: str, text: str
) -> None:
    """It took the rest of the text for a row of its own."""
    table = pa.table({"t": range(3), "k": ["x", text, None], "n": [7, None, 9]})
    write(table.to_reader(), str(tmp_path / f"a.{suffix}"))
    frame = read(spark, str(tmp_path / f"a.{suffix}"), "left")
    assert sorted(frame.collect()) == [tuple(row.values()) for row in table.to_pylist()]


def test_a_quote_in_the_middle_of_a_field_hides_no_line_break(tmp_path: Path, spark: Any) -> None:
    """Each line has an even number of quotes."""
    (tmp_path / "a.csv").write_text('k,v,w\n5" disk,"x\ny",5" disk\n5","x\ny",5"\n')
    rows = read(spark, str(tmp_path / "a.csv"), "left").collect()
    assert sorted(rows) == [('5"', "x\ny", '5"'), ('5" disk', "x\ny", '5" disk')]


def test_files_without_line_breaks_in_quotes_are_read_in_parts(tmp_path: Path, spark: Any) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", "64k")
    try:
        for text, parts in (("a,b", 2), ("a\nb", 1)):
            table = pa.table({"t": range(9_000), "k": [text] * 9_000})
            write(table.to_reader(), str(tmp_path / f"{parts}.csv"))
            frame = read(spark, str(tmp_path / f"{parts}.csv"), "left")
            assert (frame.rdd.getNumPartitions() > 1) == (parts > 1)
            assert frame.count() == 9_000
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_text_has_the_values_that_it_has_embedded(tmp_path: Path, spark: Any, suffix: str) -> None:
    """Null and the empty text apart, quotes and blanks as they are, in what is read and written."""
    texts = ["a", None, "", "NA", 'q"r', ' "x" ', "a,b\tc", " ", "\\", 'a\\"b']
    table = pa.table({"t": range(10), "k": texts, "n": pa.array([None, *range(9)])})
    path, out = str(tmp_path / f"a.{suffix}"), str(tmp_path / f"out.{suffix}")
    write(table.to_reader(), path)
    frame = read(spark, path, "left")
    assert sorted(frame.collect()) == [tuple(row.values()) for row in table.to_pylist()]
    assert written(frame, out, suffix, overwrites=False) == 10
    for part in Path(out).glob("part-*.csv"):  # as Spark calls what has tabs, too
        part.rename(part.with_suffix(f".{suffix}"))
    source = source_of(out, "left")
    found = pa.Table.from_batches(source.batches(), source.schema)
    assert found.sort_by("t").to_pylist() == table.to_pylist()


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "best", "arguments"),
    [
        (["--how", "full", "--keep-unmatched"], True, {"how": "full", "keep_unmatched": True}),
        (["--how", "inner", "--strips", "2"], True, {"how": "inner"}),
        (["--pairs", "all", "--by", "room", "--ship", "full"], False, {"by": "room"}),
    ],
    ids=str,
)  # fmt: skip
def test_the_words_mean_the_same_on_spark(
    spark: Any, files: list[str], tmp_path: Path, words: list[str], best: bool,
    arguments: dict[str, Any],
) -> None:  # fmt: skip
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    expected = join(TEMP, HUM, on={("t", "ts"): "10min"}, **arguments).read_all()
    out = tmp_path / "out.parquet"
    assert main(["join", *files, *ON, *SPARK, *words, "-o", str(out)]) == 0
    assert same(rows_of(out), expected) > 0


def test_an_as_of_join(
    spark: Any, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["asof", *files, "--on", "t:ts", "--by", "room", "--direction", "nearest", *SPARK]
    out = tmp_path / "out.parquet"
    more = ["--tolerance", "20min", "--order-by", "percent", "--ties", "first"]
    assert main([*words, *more, "-o", str(out)]) == 0
    expected = matwin.asof_join(
        TEMP, HUM, on=("t", "ts"), by="room", direction="nearest", tolerance="20min", ties="first"
    ).read_all()
    assert same(rows_of(out), expected) == TEMP.num_rows
    capfd.readouterr()
    assert main([*words, "--explain"]) == 0
    told = capfd.readouterr().out
    assert told.startswith("matwin.spark.asof_join\n") and "right rows in order of ts" in told
    assert main([*words, "--trace", "x"]) == 2
    assert "a trace belongs to one process" in capfd.readouterr().err
    assert main([*words[:-2], "--order-by", "percent"]) == 2
    assert "--order-by goes with --engine spark" in capfd.readouterr().err


def test_a_window_join_of_a_table_and_a_glob(
    spark: Any, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spark.read.parquet(files[0]).createOrReplaceTempView("cli_temp")
    out = tmp_path / "out.json"
    streams = ["a=table:cli_temp", f"b={tmp_path}/hu*.parquet"]
    words = ["--time", "a=t,b=ts", "--window", "10min", "-o", str(out), "--json"]
    assert main(["window-join", *streams, *words, *SPARK]) == 0
    expected = matwin.window_join(
        {"a": TEMP, "b": HUM}, time={"a": "t", "b": "ts"}, windows="10min"
    ).read_all()
    assert rows_of(out, "json").num_rows == expected.num_rows == 5
    summary = json.loads(capfd.readouterr().out)
    assert summary["engine"] == "spark" and summary["rows_out"] == 5 and summary["parts"] >= 1
    assert summary["shuffle_bytes"] is None  # the UI of this session, which counts, is off


def test_what_is_there_is_replaced_only_on_request(
    spark: Any, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    out.mkdir()
    (out / "old").write_text("x\n1\n")
    command = ["join", *files, *ON, *SPARK, "--strips", "1", "-o", str(out)]
    assert main(command) == 2
    err = capfd.readouterr().err
    assert "is there already" in err and err.count("\n") == 1
    assert main([*command, "--overwrite", "--quiet"]) == 0
    assert capfd.readouterr().err == ""
    assert not (out / "old").exists()
    assert rows_of(out, "csv")["percent"].to_pylist() == [40, 41, 42]


def test_an_input_is_not_written_over(
    spark: Any, files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    link = Path(files[0]).with_name("link.parquet")
    link.symlink_to(files[0])
    for out in (files[0], f"file://{files[0]}", str(link)):
        assert main(["join", *files, *ON, *SPARK, "-o", out, "--overwrite"]) == 2
        assert "is an input" in capfd.readouterr().err
    assert pq.read_table(files[0]).num_rows == 4


def test_explain_writes_nothing(
    spark: Any, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    assert main(["join", *files, *ON, *SPARK, "--explain", "-o", str(out)]) == 0
    text = capfd.readouterr().out
    assert "matwin.spark.bestmatch_join" in text and "parts" in text
    assert not out.exists()


def test_a_table_shows_the_first_rows_and_counts_all(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"n": list(range(50))}), path)
    words = ["--on", "n=0", "--pairs", "all", "--format", "table", "--strips", "2"]
    assert main(["join", str(path), str(path), *words, *SPARK]) == 0
    out, err = capfd.readouterr()
    assert "… and 30 more rows" in out and "out    50 rows" in err


# ── failures ─────────────────────────────────────────────────────────────────────────────────


def test_a_failed_task_is_one_line_with_operator_strip_and_cause(
    spark: Any, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    words = ["--pairs", "all", "--max-output-rows", "1", "--strips", "1", "-o", str(out)]
    assert main(["join", *files, "--on", "t:ts=1h", *words, *SPARK]) == 2
    err = capfd.readouterr().err
    line = next(line for line in err.splitlines() if line.startswith("matwin: error:"))
    assert "matwin.spark.epsilon_join" in line and "max_output_rows" in line
    assert "Traceback" not in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.parquet", *ON], "nowhere.parquet"),
        (["table:nowhere", *ON], "nowhere"),
        (["HUM", "--on", "t:ts=10"], "'10' has no unit"),
        (["HUM", "--on", "nothing=1"], "'nothing' is not there"),
    ],
    ids=str,
)
def test_bad_words_are_one_clear_line(
    spark: Any, files: list[str], capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    named = [files[1] if word == "HUM" else word for word in words]
    assert main(["join", files[0], *named, *SPARK]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "t.trace"], "trace a part of the data"),
        (["--verify"], "run `matwin verify`"),
        (["--sql"], "leave out --engine spark"),
        (["-o", "out.arrow"], "none that Spark writes"),
        (["--format", "feathers"], "none of"),
        (["--overwrite"], "--overwrite goes with -o"),
        (["--conf", "spark.executor.memory"], "write KEY=VALUE"),
    ],
    ids=str,
)
def test_words_that_make_no_sense_are_refused_before_spark_starts(
    files: list[str], capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["join", *files, *ON, *SPARK, "--master", "nonsense", *words]) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_stream_that_grows_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["window-join", "a=-", "b=b.jsonl", "--time", "t", "--window", "1s"]
    assert main([*words, *SPARK]) == 2
    assert "Spark can't read standard input" in capfd.readouterr().err
    assert main([*words, *SPARK, "--follow"]) == 2
    assert "leave out --follow" in capfd.readouterr().err


def test_words_of_spark_need_its_engine(
    files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["join", *files, *ON, "--strips", "3"]) == 2
    assert "--strips goes with --engine spark" in capfd.readouterr().err


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr(spark_words, "import_module", lacking)
    with pytest.raises(InputError, match=r"pip install 'matwin\[spark\]'"):
        spark_words.spark_module("matwin.tools.spark_join")


def test_without_java_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from matwin.spark.session import _check_java

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="Java 17 or later"):
        _check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="there is none in PATH"):
        _check_java()


# ── a process of its own ─────────────────────────────────────────────────────────────────────


def test_the_command_starts_spark_quietly_and_reads_times_from_csv(
    files: list[str], tmp_path: Path
) -> None:
    text = tmp_path / "hum.csv"
    pa_csv.write_csv(HUM, text)
    call = "import sys; from matwin.tools.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "join", files[0], str(text), *ON, *SPARK]
    words = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", "--json"]
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    outside |= DRIVER_JAVA
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=outside)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stderr)  # and nothing else: neither progress nor Java's chatter
    assert summary["rows_out"] == 3 and summary["shuffle_bytes"] > 0
    assert done.stdout.count("\n") == 4 and "00:09:00" in done.stdout
