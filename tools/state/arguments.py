"""The arguments of `matwin state`, without what takes time to load."""

from __future__ import annotations

import argparse


def configure_show(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin state show`."""
    _folder(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="only see that it opens")


def configure_verify(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin state verify`."""
    _folder(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="say it by the exit code alone")


def configure_export(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin state export`."""
    _folder(parser)
    add = parser.add_argument
    add("--stream", metavar="NAME", help="of this stream alone (all, each to a file of its own)")
    add("-o", "--output", metavar="OUT", help="a file for one stream, a folder for several "
        "(standard output)")  # fmt: skip
    add("--format", help="parquet, ipc, csv, tsv, jsonl or table; else the name of OUT says it, "
        "and in a folder it is parquet")  # fmt: skip
    add("--overwrite", action="store_true", help="replace files that are there")
    add("--json", action="store_true", help="print what was written as JSON")
    add("-q", "--quiet", action="store_true", help="don't say what was written")


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="the folder that state= named")
