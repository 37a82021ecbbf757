"""The arguments of the joins, the demo and `warm`; those of traces and benchmarks are with them.

    matwin join --help ──▶ arguments.py          what can be said: argparse and nothing else
    matwin join a b … ───▶ words.py, join.py     what it means, on Arrow and Numba

Help, completion and usage errors need no library that takes a quarter of a second to load.  Choices
whose home is such a library are written once more here; a test compares them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

DEMO_PAGE = Path("matwin-demo.html")
MASTER = "local[*]"
FILES = "file, folder, URI or glob in quotes; - is standard input"
SHIPS = ("auto", "full", "partial")
BESTMATCH_HOWS = ("inner", "left", "right", "full")
EPSILON_HOWS = (*BESTMATCH_HOWS, "semi", "anti")
FORMS = ("auto", "standard", "grid", "slab")
MODES = ("gallop", "crabstep", "lookahead", "auto")
DIRECTIONS = ("backward", "forward", "nearest")
TIES = ("last", "first", "all")
ASOF_HOWS = ("left", "inner")
ALGORITHMS = (
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash",
)  # fmt: skip
BOUNDS = ("auto", "global", "local", "graph")


def configure_join(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin join`."""
    _configure_question(parser)
    _configure_output(parser)
    parser.add_argument("--verify", action="store_true", help="ask DuckDB the same and compare")
    parser.add_argument("--sql", action="store_true", help="print the question as SQL, and stop")
    parser.add_argument("--explain", action="store_true", help="say what would be done, and stop")
    _configure_options(parser)
    _configure_spark(parser)


def configure_asof(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin asof`."""
    add = parser.add_argument
    add("left", metavar="LEFT", help=FILES)
    add(
        "right",
        metavar="RIGHT",
        help=FILES,
    )
    add("--on", action="append", metavar="COLUMN[:COLUMN]", required=True,
        help="the column to be near in")  # fmt: skip
    add("--by", action="append", metavar="COLUMN[:COLUMN]", help="equality key; again for more")
    add("--tolerance", metavar="LIMIT", help="how far away a match may be (5min, 0.5); any "
        "distance if left out")  # fmt: skip
    add("--direction", choices=DIRECTIONS, default="backward",
        help="the last right row before or at the left one (backward, the default), the first "
        "after or at it (forward), or the nearer of both")  # fmt: skip
    add("--ties", choices=TIES, default="last",
        help="which of right rows with the same value (last)")  # fmt: skip
    add("--no-exact-matches", action="store_true", help="a right row of the same value is no match")
    add("--how", choices=ASOF_HOWS, default="left",
        help="keep left rows without a match (left, the default) or not (inner)")  # fmt: skip
    add("--suffixes", metavar="LEFT,RIGHT", help="for names on both sides (nothing and _right)")
    _configure_input(parser)
    _configure_output(parser)
    add("--verify", action="store_true", help="ask DuckDB the same and compare")
    add("--explain", action="store_true", help="say what would be done, and stop")
    _configure_options(parser)
    spark = _configure_spark(parser)
    spark.add_argument("--order-by", action="append", metavar="COLUMN",
        help="which of right rows with the same value comes first; again for more (all "
        "columns)")  # fmt: skip


def configure_sql(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin sql`."""
    add = parser.add_argument
    add("words", metavar="FILE | NAME=FILE", nargs="*",
        help="a file with the query, and tables: a name, and a file or a glob for it")  # fmt: skip
    add("-c", "--command", metavar="QUERY", help="the query; else a file, standard input, or the "
        "prompt on a terminal")  # fmt: skip
    _configure_output(parser)
    add("--explain", action="store_true", help="say what would be done, and stop")
    _configure_options(parser)


def configure_verify(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin verify`."""
    _configure_question(parser)
    parser.add_argument("--result", metavar="FILE", help="check this answer, don't run the join")
    parser.add_argument("--sql", action="store_true", help="print the question as SQL, and stop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="say it by the exit code alone")
    _configure_options(parser)


def configure_window_join(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin window-join`."""
    _configure_streams(parser)
    _configure_output(parser)
    add = parser.add_argument
    add("--verify", action="store_true", help="ask DuckDB the same and compare")
    add("--sql", action="store_true", help="print the question as SQL, and stop")
    add("--explain", action="store_true", help="say what would be done, and stop")
    _configure_following(parser)
    _configure_options(parser)
    add("--algorithm", choices=ALGORITHMS, metavar="NAME",
        help=f"how tuples are found: {', '.join(ALGORITHMS)}")  # fmt: skip
    add("--bounds", choices=BOUNDS, help="how tight the windows are bounded (auto)")
    add("--max-delay", metavar="DURATION", help="how long results may wait, such as 500ms")
    _configure_spark(parser)


def configure_demo(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin demo`."""
    add = parser.add_argument
    add("--rows", type=int, metavar="N", help="only so many flights")
    add("--memory", metavar="SIZE", default="4MiB", help="memory for the join (4MiB)")
    add("--page-size", metavar="SIZE", default="32KiB", help="size of a page (32KiB)")
    add("-o", "--output", type=Path, metavar="PAGE",
        help=f"where the trace's page goes ({DEMO_PAGE}, made anew each time); the trace goes "
        "next to it")  # fmt: skip
    add("--overwrite", action="store_true", help="replace files that are there")
    add("--json", action="store_true", help="print the summary as JSON, and no rows")
    add("-q", "--quiet", action="store_true", help="say it by the exit code alone")


def configure_warm(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin warm`."""
    parser.description = f"{parser.description} Run it once after an installation."
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def _configure_input(parser: argparse.ArgumentParser) -> None:
    """Declare what files are whose names don't say it."""
    parser.add_argument(
        "--input-format", metavar="FORMAT",
        help="parquet, csv, tsv, jsonl or arrow: what standard input (-) is, and files whose names "
        "don't say it; on Spark also what it reads besides",
    )  # fmt: skip


def _configure_output(parser: argparse.ArgumentParser) -> None:
    """Declare where the rows and the summary go."""
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", help="where the rows go (standard output)")
    add("--format", help="parquet, ipc, csv, tsv, jsonl or table; else the name of FILE says it")
    add("--json", action="store_true", help="print the summary as JSON")
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def _configure_question(parser: argparse.ArgumentParser) -> None:
    """Declare what is asked."""
    parser.add_argument("left", metavar="LEFT", help=FILES)
    parser.add_argument(
        "right",
        metavar="RIGHT",
        help=FILES,
    )
    add = parser.add_argument
    add("--on", action="append", metavar="COLUMN[:COLUMN][=LIMIT]", required=True,
        help="join attribute and how far apart (t=10min, x=0.5, t=-10min..0s for right - left); "
        "the first is the order attribute; again for more")  # fmt: skip
    add("--by", action="append", metavar="COLUMN[:COLUMN]", help="equality key; again for more")
    add("--pairs", choices=("best", "all"), default="best",
        help="the best pairs (bestmatch join, the default) or all in reach (ε-join)")  # fmt: skip
    add("--how", choices=EPSILON_HOWS, metavar="HOW",
        help=f"best: {', '.join(BESTMATCH_HOWS)} (left unless said otherwise); "
        f"all: {', '.join(EPSILON_HOWS)} (inner)")  # fmt: skip
    add("--order", action="append", metavar="COLUMN=ORDER",
        help="what is better on an attribute: min_distance, youngest or subset")  # fmt: skip
    add("--keep-unmatched", action="store_true", help="keep rows without a partner")
    add("--distances", action="store_true", help="add a column with each attribute's distance")
    add("--suffixes", metavar="LEFT,RIGHT", help="for names on both sides (_left,_right)")
    _configure_input(parser)


def _configure_options(parser: argparse.ArgumentParser) -> None:
    """Declare how it is to be done."""
    group = parser.add_argument_group("how it is done")
    group.add_argument("--memory", metavar="SIZE", help="memory budget, such as 256MiB")
    group.add_argument("--page-size", metavar="SIZE", help="size of a page (256KiB, or what fits)")
    group.add_argument("--materialize", choices=FORMS, help="form of windows on disk (auto)")
    group.add_argument("--schedule", choices=MODES, help="order of page reads (auto)")
    group.add_argument("--scratch", metavar="FOLDER", help="where pages go that don't fit")
    group.add_argument("--threads", type=int, metavar="N", help="threads to use")
    group.add_argument("--trace", metavar="FILE", help="write what happened to each page")
    group.add_argument("--overwrite", action="store_true", help="replace files that are there")
    group.add_argument("--max-output-rows", type=int, metavar="N", help="give up beyond N rows")


def _configure_streams(parser: argparse.ArgumentParser) -> None:
    """Declare what is asked."""
    add = parser.add_argument
    add("streams", metavar="NAME=FILE", nargs="+", help="a stream: its name, and a file or a glob")
    add("--time", action="append", metavar="COLUMN", required=True,
        help="the time column of all streams, or of one (a=ts); again for more")  # fmt: skip
    add("--window", action="append", metavar="[A,B=]WINDOW", default=[],
        help="how far apart every pair (1h) or one pair (a,b=5s, a,b=-2s..5s for b - a) may be; "
        "again for more pairs")  # fmt: skip
    add("--then", action="append", metavar="A,B=WINDOW", default=[],
        help="B comes at the same time or up to WINDOW later; again for more pairs")  # fmt: skip
    add("--path", metavar="A,B,C=WINDOW,WINDOW",
        help="one stream after the other, each within its window of the one before")  # fmt: skip
    add("--both-ways", action="store_true", help="the path in this order or in the reverse")
    add("--by", action="append", metavar="COLUMN", default=[],
        help="equality key, of all streams (obj) or by each one's name (a=obj,b=object); "
        "again for more")  # fmt: skip
    add("--where", action="append", metavar="A.X,B.X=LIMIT", default=[],
        help="how far apart two other columns may be (a.x,b.x=0.5, a.x,b.x=0..2 for b.x - a.x); "
        "again for more")  # fmt: skip
    _configure_input(parser)


def _configure_following(parser: argparse.ArgumentParser) -> None:
    """Declare what is said of streams that grow."""
    group = parser.add_argument_group(
        "streams that grow",
        "a=- is JSON lines on standard input unless --input-format says otherwise, a=file.jsonl "
        "JSON lines in a file or a named pipe. A "
        "pipe ends when its writers close it, a file when it is removed.",
    )
    add = group.add_argument
    add("--follow", action="store_true", help="read JSON lines as they come, write rows at once")
    add("--schema", action="append", metavar="A=COLUMN:TYPE,…", default=[],
        help="columns of JSON lines (a=t:timestamp[us],obj:string); else the first lines "
        "tell")  # fmt: skip
    add("--stream-field", metavar="NAME", help="which field of a line on standard input names its "
        "stream, where there are several")  # fmt: skip
    add("--lateness", action="append", metavar="[A=]DURATION", default=[],
        help="rows of all followed streams, or of one, may come so late (none: sorted); again "
        "for more")  # fmt: skip
    add("--late", choices=("error", "drop"), help="what becomes of rows that come later (error)")


def _configure_spark(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare where the join runs."""
    group = parser.add_argument_group(
        "on Spark",
        "reads and writes what Spark can: Parquet, ORC, CSV and JSON files, folders and globs, and "
        "tables as table:NAME",
    )
    add = group.add_argument
    add("--engine", choices=("embedded", "spark"), default="embedded",
        help="in this process (the default) or on Spark")  # fmt: skip
    add("--master", metavar="URL", help=f"where Spark runs ({MASTER}; sc://host for Spark Connect)")
    add(
        "--conf", action="append", metavar="KEY=VALUE", help="Spark's configuration; again for more"
    )
    add("--strips", type=int, metavar="N", help="into how many parts the work is divided")
    add("--ship", choices=SHIPS,
        help="shuffle rows whole (full), or first without payload (partial), or auto")  # fmt: skip
    return group
