"""A trace as another file: a page for a browser, a time line for Perfetto.

trace ──▶ pieces of text ──▶ one file, which is there when it is complete
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from matwin.outputs import check_outputs, write_pieces
from matwin.storage.units import format_size
from matwin.text import escaped

from .events import Events


def configure(parser: argparse.ArgumentParser, metavar: str, suffix: str) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, help="trace file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar=metavar, help=f"where to write (default: FILE{suffix})"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    parser.add_argument("--json", action="store_true", help="say as JSON what was written")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing")


def export(
    args: argparse.Namespace, suffix: str, pieces: Callable[[Events, str], Iterator[str]]
) -> int:
    """Write the file, and say how large it is."""
    events = Events.open(args.file)
    output = args.output or args.file.with_suffix(suffix)
    check_outputs({"-o": output}, [str(args.file)], overwrite=args.overwrite)
    size = write_pieces(output, pieces(events, args.file.name), overwrite=args.overwrite)
    if args.json:
        print(json.dumps({"output": str(output), "bytes": size, "events": len(events)}))
    elif not args.quiet:
        print(f"wrote {escaped(str(output))}: {format_size(size)}, {len(events):,} events")
    return 0
