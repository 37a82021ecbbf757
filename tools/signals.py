"""Signals that end a command: in order at first, and in any case if they keep coming.

    first      a join or another command breaks off and cleans up; with --follow no more is read,
               and what has been read is joined and written
    second     --follow breaks off; otherwise nothing, because somebody is cleaning up
    third      the kernel ends the process, as if there were no handler; what is left behind by
               that, the next run removes

A handler runs between any two steps of the main thread, also while it holds a lock, and inside
another handler.  So it takes no lock: it sets plain numbers, and raises or does not.

What a handler raises is lost where Python was called by C or by the garbage collector (LLVM calls
back while kernels are loaded).  Python tells a hook of it, and a timer then raises it once more.

A signal that was ignored when we were started (nohup) stays ignored.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 0.05
"""How long after it was lost an interrupt is raised again: whoever called back is done by then."""


class Signals:
    """The signals that came while a command ran; `is_gentle` lets the first only ask.

    Inside another one it takes over; what that one has raised and what was lost of it, it raises
    once more.
    """

    _innermost: Signals | None = None

    def __init__(self, *, is_gentle: bool = False) -> None:
        self.number = 0
        self.when_first: Callable[[], None] | None = None
        """Called by the handler of the first one; it may set a plain flag and nothing else."""
        self._times = 0
        self._is_gentle = is_gentle
        self._is_held = False
        self._is_due = False
        self._before: dict[int, Any] = {}
        # A signal may come before all is taken over, and then everything is given back.
        self._hook = sys.unraisablehook
        self._outer = Signals._innermost

    @property
    def code(self) -> int:
        """The exit code that the signals ask for, 0 if none came."""
        return 128 + self.number if self.number else 0

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._came)
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._again)
        sys.unraisablehook = self._lost
        Signals._innermost = self
        if self._outer is not None and self._outer._is_due:
            self.__exit__(None, None, None)
            raise KeyboardInterrupt
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._is_held = True  # nobody would catch it any more
        sys.unraisablehook = self._hook
        Signals._innermost = self._outer
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._times += 1
        if self._times == 1 and self.when_first is not None:
            self.when_first()
        if self._times == 3:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._times != 1 + self._is_gentle:
            return
        self._is_due = True
        if not self._is_held:
            raise KeyboardInterrupt

    def _lost(self, unraisable: Any) -> None:
        """An exception that has nowhere to go; ours is wanted all the same."""
        if self._is_due and issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._hook(unraisable)

    def _again(self, number: int, frame: FrameType | None) -> None:
        if self._is_due and not self._is_held:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Break off if a signal wanted that in the meantime."""
        if self._is_due:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """While something is written that must be whole, no signal breaks it off."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self.check()
