"""The arguments of `matwin bench …`, declared without Arrow so that help is quick."""

from __future__ import annotations

import argparse

SPARK_PARTS = ("window", "epsilon", "bestmatch", "embedded", "ship", "executors")
WINDOW_LARGEST = 10_000_000
LARGE_ROWS = 100_000_000


def configure_storage(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench storage`."""
    add = parser.add_argument
    add("--size", default="512MiB", help="bytes for each page measurement (default: 512MiB)")
    _add_rows(parser, 2_000_000, "rows for each window form")
    add("--memory", metavar="SIZE", default="32MiB",
        help="budget for the window forms (default: 32MiB)")  # fmt: skip
    _add_repeat(parser, 3)
    add("--scratch", metavar="FOLDER", help="folder to measure in")
    _add_answer(parser)


def configure_schedule(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench schedule`."""
    _add_quick(parser, "a part of it that takes seconds")
    _add_seed(parser, "layouts")
    _add_repeat(parser, 1, "plan so often; the best time counts")
    _add_plot(parser)
    _add_answer(parser)


def configure_suite(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench epsilon` and `matwin bench bestmatch`."""
    _add_quick(parser)
    _add_rows(parser, 1_000_000, "rows a side of the large cases")
    parser.add_argument("--growth", type=int, metavar="N", default=3_000_000,
                        help="grow up to so many rows (default: 3,000,000)")  # fmt: skip
    _add_repeat(parser, 3)
    _add_seed(parser)
    _add_scratch(parser)
    _add_plot(parser)
    _add_answer(parser)


def configure_asof(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench asof`."""
    parser.add_argument(
        "--merge", action="store_true",
        help="in 16 MiB instead, beside the time in memory and a plain copy",
    )  # fmt: skip
    configure_plain(parser)


def configure_plain(parser: argparse.ArgumentParser) -> None:
    """Declare what most benchmarks take."""
    _add_quick(parser)
    _add_rows(parser)
    _add_repeat(parser, 5)
    _add_seed(parser)
    _add_answer(parser)


def configure_sql(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench sql`."""
    configure_plain(parser)


def configure_start(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench start`."""
    _add_quick(parser)
    _add_rows(parser, 100_000)
    _add_repeat(parser, 3, "warm runs; the best counts")
    _add_seed(parser)
    _add_answer(parser)


def configure_epochs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench epochs`."""
    _add_quick(parser, "small chunks")
    parser.add_argument("--chunk", type=int, metavar="N", default=100_000,
                        help="rows of a chunk, for growth (default: 100,000)")  # fmt: skip
    parser.add_argument("--keep", type=int, metavar="N", default=10,
                        help="chunks of the smallest window, for growth (default: 10)")  # fmt: skip
    _add_seed(parser, "streams")
    _add_answer(parser)


def configure_memory(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench memory`."""
    add = parser.add_argument
    _add_quick(parser)
    _add_rows(parser)
    _add_repeat(parser, 2)
    _add_seed(parser)
    add("--only", default="", metavar="TEXT", help="cases with this in their name")
    add("--no-duckdb", action="store_true", help="leave DuckDB out")
    add("--timeout", type=float, metavar="SECONDS", default=300.0,
        help="seconds that DuckDB may take (default: 300)")  # fmt: skip
    _add_scratch(parser)
    _add_answer(parser)


def configure_ways(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench ways`."""
    _add_quick(parser)
    _add_rows(parser)
    _add_repeat(parser, 2)
    _add_seed(parser)
    _add_scratch(parser)
    _add_answer(parser)


def configure_large(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench large`."""
    add = parser.add_argument
    _add_quick(parser, "small files: seconds, not minutes")
    _add_rows(parser, LARGE_ROWS)
    add("--memory", metavar="SIZE", default="512MiB", help="of the join (default: 512MiB)")
    add("--epsilon", type=int, nargs="*", metavar="ROWS",
        help="rows a side of ε-joins in memory (default: 4M and 10M; without a number: "
        "none)")  # fmt: skip
    add("--beside", metavar="PYTHON", help="the Python of another installation")
    _add_seed(parser)
    add("--scratch", metavar="FOLDER", help="folder for files and pages")
    _add_answer(parser)


def configure_window(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench window`."""
    configure_suite(parser)
    parser.add_argument(
        "--window", type=int, metavar="N", default=WINDOW_LARGEST,
        help=f"the largest window of live streams, in tuples (default: {WINDOW_LARGEST:,})",
    )  # fmt: skip


def configure_paper_bestmatch(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench paper-bestmatch`."""
    _configure_paper(parser, 3, "draw a plot of each experiment, FILE with its name put in")


def configure_paper_window(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench paper-window`."""
    _configure_paper(parser, 2, "draw a plot of each experiment, FILE with its name put in")


def configure_paper_semijoin(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench paper-semijoin`."""
    _configure_paper(parser, 2, "draw all experiments into FILE")


def configure_scale(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench scale`."""
    add = parser.add_argument
    _add_rows(parser, 1_000_000, "rows a side of the largest")
    add("--master", metavar="URL", default="local[2]", help="where Spark runs (default: local[2])")
    add("--slots", type=int, metavar="N", default=2, help="tasks at a time there (default: 2)")
    _add_plot(parser)
    _add_answer(parser)


def configure_spark(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin bench spark`."""
    add = parser.add_argument
    _add_rows(parser, 1_000_000, "rows a side of the large cases")
    _add_repeat(parser, 2)
    add("--only", action="append", choices=SPARK_PARTS, metavar="PART",
        help=f"this part alone ({', '.join(SPARK_PARTS)}); again for more")  # fmt: skip
    _add_seed(parser)
    add("--scratch", metavar="FOLDER", help="folder for the Parquet files")
    _add_plot(parser)
    _add_answer(parser)


# ── what many have ───────────────────────────────────────────────────────────────────────────


def _configure_paper(parser: argparse.ArgumentParser, repeat: int, plot: str) -> None:
    _add_quick(parser, "short streams: seconds, not minutes")
    _add_repeat(parser, repeat)
    _add_seed(parser, "streams")
    parser.add_argument("--plot", metavar="FILE", help=plot)
    _add_answer(parser)


def _add_quick(
    parser: argparse.ArgumentParser, text: str = "small tables: seconds, not minutes"
) -> None:
    parser.add_argument("--quick", action="store_true", help=text)


def _add_rows(
    parser: argparse.ArgumentParser, usual: int = 1_000_000, text: str = "rows a side"
) -> None:
    parser.add_argument(
        "--rows", type=int, metavar="N", default=usual, help=f"{text} (default: {usual:,})"
    )


def _add_repeat(
    parser: argparse.ArgumentParser, usual: int, text: str = "runs of each; the best counts"
) -> None:
    parser.add_argument(
        "--repeat", type=int, metavar="N", default=usual, help=f"{text} (default: {usual})"
    )


def _add_seed(parser: argparse.ArgumentParser, what: str = "tables") -> None:
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help=f"other random {what} (default: 0)"
    )


def _add_scratch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scratch", metavar="FOLDER", help="folder for pages")


def _add_plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", metavar="FILE", help="draw a plot as well, a .png or .svg")


def _add_answer(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON instead of tables")
    add("-q", "--quiet", action="store_true", help="no progress, only the figures")
