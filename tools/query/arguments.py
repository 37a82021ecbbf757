"""The arguments of `matwin query`, without what takes time to load."""

from __future__ import annotations

import argparse

FORMATS = ("csv", "tsv", "jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("job", metavar="JOB", help="the job, a TOML file; paths in it are relative to its folder")
    add("--once", action="store_true", help="take what is there, and stop")
    add("--state", metavar="FOLDER", help="where each epoch is committed, in place of the job's")
    add("--sink", metavar="SINK", help="where results go, in place of the job's: a folder, "
        "file.sqlite:table, file.duckdb:table, or - for standard output")  # fmt: skip
    add("--sink-from", metavar="here", help="rows of earlier epochs were moved out of the sink on "
        "purpose: go on behind them")  # fmt: skip
    add("--memory", metavar="SIZE", help="memory budget, such as 256MiB, in place of the job's")
    add("--trace", metavar="FILE", help="write what happened to each page")
    add("--status", metavar="[HOST]:PORT", help="show the query on a page; on this machine only "
        "unless HOST is given")  # fmt: skip
    add("--format", choices=FORMATS, help="how results are written to standard output (csv)")
    add("--json", action="store_true", help="print a line of JSON for each epoch; without a sink "
        "it has the rows")  # fmt: skip
    add("-q", "--quiet", action="store_true", help="no status and no summary")
