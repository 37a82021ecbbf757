"""What a continuous query tells while it runs: a line on a terminal, JSON by epoch, a summary.

epoch 12  10:04:00 … 10:05:00  1,204,000 rows in  3,120 out  state 48 MiB  lag 2.1 s  cut 38 ms
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from matwin.operators.epochs.continuous import Epoch, Status
from matwin.report import Visitors
from matwin.storage.units import format_size
from matwin.text import cut, escaped

if TYPE_CHECKING:
    from rich.live import Live

REFRESH_SECONDS = 0.1
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?Z?)?")
_UNITS = ((86400 * 365.25, "y"), (86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(0.0384), duration(0.5), duration(2.14), duration(7200), duration(-3.0)
    ('38.4 ms', '500 ms', '2.1 s', '2 h', '-3 s')
    """
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.3g} ms"
    size, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    amount = seconds / size
    return f"{sign}{amount:.1f}".removesuffix(".0") + f" {unit}"


def brief(bounds: str) -> str:
    """Bounds without zeros and without a day that is said before.

    >>> brief("2026-01-01 00:01:00.000000 … 2026-01-01 00:02:00.500000")
    '2026-01-01 00:01:00 … 00:02:00.5'
    >>> brief("60 … 120"), brief("2026-01-01 … 2026-01-02"), brief("graph 7")
    ('60 … 120', '2026-01-01 … 2026-01-02', 'graph 7')
    """
    sides = bounds.split(" … ")
    if len(sides) != 2 or not all(map(_MOMENT.fullmatch, sides)):
        return bounds
    low, high = (re.sub(r"\.?0+(?=Z?$)", "", s) if "." in s else s for s in sides)
    is_same_day = low[:11] == high[:11] and len(low) > 11
    return f"{low} … {high[11:] if is_same_day else high}"


def line_of(status: Status, width: int = 200) -> str:
    """The status in one line; what matters least is left out first.

    >>> line_of(Status(epoch=2, bounds="60 … 120", rows_in=7, rows_out=3, state_bytes=4096))
    'epoch 2  60 … 120  7 rows in  3 out  state 4 KiB  after the cut 0 ms'
    """
    lag = status.lag_seconds
    rows = status.rows_in + status.open_rows
    parts = [
        (0, f"epoch {status.epoch}"),
        (4, escaped(brief(status.bounds))),
        (1, f"{rows:,} rows in"),
        (2, f"{status.rows_out:,} out"),
        (5, f"state {format_size(status.state_bytes)}"),
        (3, f"lag {duration(lag)}" if lag is not None else ""),
        (6, f"after the cut {duration(status.seconds_after_cut)}" if status.epoch else ""),
    ]
    parts = [part for part in parts if part[1]]
    while len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    return cut(_joined(parts), width)


def _joined(parts: list[tuple[int, str]]) -> str:
    return "  ".join(text for _, text in parts)


class StatusLine:
    """The status of a query on a terminal, as a context that leaves nothing there."""

    def __init__(self, stream: TextIO | None = None, *, is_wanted: bool = True) -> None:
        self._stream = stream or sys.stderr
        self.is_on = is_wanted and self._stream.isatty()
        self._live: Live | None = None
        self._drawn_at = 0.0

    def __call__(self, status: Status) -> None:
        """Show it, about ten times a second."""
        now = time.monotonic()
        if not self.is_on or now - self._drawn_at < REFRESH_SECONDS:
            return
        self._drawn_at = now
        from rich.text import Text

        live = self._started()
        text = Text(line_of(status, live.console.width - 1), no_wrap=True, overflow="ellipsis")
        live.update(text, refresh=True)

    def _started(self) -> Live:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, force_terminal=True, highlight=False)
            # Without a thread of its own, which would be lost where a process forks.
            self._live = Live(console=console, auto_refresh=False, transient=True,
                              redirect_stdout=False, redirect_stderr=False)  # fmt: skip
            self._live.start()
        return self._live

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()


def epoch_json(epoch: Epoch, status: Status) -> dict[str, Any]:
    """An epoch as ``--json`` and the status page tell it."""
    report = epoch.report
    return {
        "epoch": epoch.id,
        "bounds": str(epoch.bounds),
        "rows_in": report.rows,
        "rows_out": report.rows_out,
        "late": report.late,
        "rejected": report.rejected,
        **_visitors(report.visitors),
        "seconds": round(report.seconds, 6),
        "seconds_after_cut": round(report.seconds_after_cut, 6),
        "seconds_commit": round(report.seconds_commit, 6),
        "state_rows": report.state_rows,
        "state_bytes": report.state_bytes,
        "lag_seconds": None if status.lag_seconds is None else round(status.lag_seconds, 3),
        "is_replayed": epoch.is_replayed,
        "is_partial": epoch.is_partial,
    }


def _visitors(found: Mapping[str, Visitors]) -> dict[str, Any]:
    """Connections that came to nothing, of streams that listen."""
    return {"connections": {name: asdict(each) for name, each in found.items()}} if found else {}


def summary(status: Status, epochs: int, last: Epoch | None, seconds: float, state: Any) -> str:
    """What a run has done, in a line; and one for each stream that had rows left out."""
    runs = f"{epochs:,} epoch{'' if epochs == 1 else 's'} in {duration(seconds)}"
    kept = f"; {escaped(str(state))} is at epoch {status.epoch}" if state is not None else ""
    lines = [f"{runs}: {status.rows_in:,} rows in, {status.rows_out:,} out since the "
             f"beginning{kept}"]  # fmt: skip
    report = last.report if last is not None else None
    for name in report.rows if report is not None else ():
        assert report is not None
        late, rejected = report.late.get(name, 0), report.rejected.get(name, 0)
        if late or rejected:
            lines.append(f"{escaped(name)}: {late:,} rows late, {rejected:,} without a value to "
                         "cut by, since the beginning")  # fmt: skip
    for name, each in status.visitors.items():
        if each.refused or each.broken:
            lines.append(f"{escaped(name)}: {each.refused:,} connections refused, which gave no "
                         f"row, {each.broken:,} broken off after rows")  # fmt: skip
    return "\n".join(lines)


def as_line(value: dict[str, Any]) -> str:
    """JSON in one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
