"""How a command tells its answer: as text, as JSON, or not at all.

--json     one document, for programs; it is asked for, so -q does not silence it
--quiet    nothing: the exit code is the answer
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable


def tell_answer(
    args: argparse.Namespace,
    document: Callable[[], object],
    text: Callable[[], str],
    *,
    indent: int | None = 2,
) -> None:
    """Print one of the two forms; the other is not even made."""
    if args.json:
        print(json.dumps(document(), indent=indent))
    elif not args.quiet:
        print(text())
