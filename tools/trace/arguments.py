"""The arguments of `matwin trace …`, declared without Arrow so that help is quick."""

from __future__ import annotations

import argparse
from pathlib import Path

PAGES_SHOWN = 30
ROWS_SHOWN = 8
PLANS_SHOWN = 4
MODES = ("gallop", "crabstep", "lookahead", "auto")
REPLACEMENTS = ("lru", "fifo", "optimal")
PERFETTO_SUFFIX = ".perfetto.json"


def configure_summary(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace summary`."""
    parser.add_argument("file", help="trace file")
    _configure_answer(parser)


def configure_pages(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace pages`."""
    add = parser.add_argument
    add("file", help="trace file")
    add("--window", metavar="NAME", help="only this window's pages")
    add("--page", type=int, metavar="N", help="the life of this page")
    add("--limit", type=int, metavar="N",
        help=f"lines at most, 0 for all (default: {PAGES_SHOWN} pages)")  # fmt: skip
    _configure_answer(parser, "print JSON, all of it without --limit")


def configure_dump(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace dump`."""
    add = parser.add_argument
    add("file", help="trace file")
    add("--window", metavar="NAME", required=True, help="the page's window")
    add("--page", type=int, metavar="N", required=True, help="the page's number")
    add("--store", metavar="FOLDER", help="the page file's folder, if not where the trace says")
    add("--rows", type=int, metavar="N", default=ROWS_SHOWN,
        help=f"rows to print (default: {ROWS_SHOWN})")  # fmt: skip
    add("--full", action="store_true", help="print every byte and every cell")
    _configure_answer(parser, "print the page and its rows as JSON")


def configure_matrix(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace matrix`."""
    add = parser.add_argument
    add("file", help="trace file")
    add("--plan", type=int, metavar="N", default=0, help="which walk, counted from 0 (default: 0)")
    add("--upto", type=int, metavar="EVENT", help="show how it stood after this event")
    add("--width", type=int, metavar="N",
        help="columns of text to use (default: the terminal's)")  # fmt: skip
    _configure_answer(parser, "print visits and loads as JSON")


def configure_replay(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace replay`."""
    add = parser.add_argument
    add("file", help="trace file")
    add("--plan", type=int, metavar="N", help=f"only this walk (default: up to {PLANS_SHOWN})")
    add("--frames", metavar="N", help="N, N,M,… or A..B (default: around what the trace had)")
    add("--mode", metavar="MODE", help=f"{', '.join(MODES)} or all (default)")
    add("--replacement", metavar="NAME", help=f"{', '.join(REPLACEMENTS)} or all (default)")
    _configure_answer(parser)


def configure_diff(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace diff`."""
    parser.add_argument("a", help="trace file")
    parser.add_argument("b", help="trace file to compare with it")
    _configure_answer(parser)


def configure_html(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace html`."""
    _configure_export(parser, "PAGE", ".html")


def configure_perfetto(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `matwin trace perfetto`."""
    _configure_export(parser, "JSON", PERFETTO_SUFFIX)
    where = "Open the file at ui.perfetto.dev, which reads it on your own machine."
    parser.description = f"{parser.description} {where}"


def _configure_export(parser: argparse.ArgumentParser, metavar: str, suffix: str) -> None:
    add = parser.add_argument
    add("file", type=Path, help="trace file")
    add("-o", "--output", type=Path, metavar=metavar,
        help=f"where to write (default: FILE{suffix})")  # fmt: skip
    add("--overwrite", action="store_true", help="replace a file that is there")
    add("--json", action="store_true", help="say as JSON what was written")
    add("-q", "--quiet", action="store_true", help="say nothing")


def _configure_answer(
    parser: argparse.ArgumentParser, as_json: str = "print JSON instead of tables"
) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help=as_json)
    add("-q", "--quiet", action="store_true",
        help="print nothing; the exit code says whether the trace can be read")  # fmt: skip
