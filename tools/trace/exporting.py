"""A trace as another file: a page for a browser, a time line for Perfetto.

trace ──▶ pieces of text ──▶ one file, which is there when it is complete
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from matwin.outputs import check_outputs, write_pieces
from matwin.storage.units import format_size
from matwin.text import escaped
from matwin.tools.answers import tell_answer

from .events import Events


def export(
    args: argparse.Namespace, suffix: str, pieces: Callable[[Events, str], Iterator[str]]
) -> int:
    """Write the file, and say how large it is."""
    events = Events.open(args.file)
    output = args.output or args.file.with_suffix(suffix)
    check_outputs({"-o": output}, [str(args.file)], overwrite=args.overwrite)
    size = write_pieces(output, pieces(events, args.file.name), overwrite=args.overwrite)
    tell_answer(
        args,
        lambda: {"output": str(output), "bytes": size, "events": len(events)},
        lambda: f"wrote {escaped(str(output))}: {format_size(size)}, {len(events):,} events",
        indent=None,
    )
    return 0
