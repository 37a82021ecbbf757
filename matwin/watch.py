"""What the process holds while a join runs, as the kernel counts it."""

from __future__ import annotations

from matwin.storage.machine import resident_bytes

from .report import Report


class ProcessWatch:
    """Looks at the process now and then, and notes the most in the report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        _, self._most_before = resident_bytes()

    def look(self) -> None:
        """Note what there is.  The kernel's own peak counts where it rose during the join; where it
        did not, it is of something before, and what is seen in between must do."""
        now, most = resident_bytes()
        seen = most if most > self._most_before else now
        self._report.process_bytes = max(self._report.process_bytes, seen)
