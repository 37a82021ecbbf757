"""The buffer pool: frames for pages, inside a byte budget that is never exceeded.

    pin(page) ──▶ in a frame? ──yes──▶ hit
                      │no
                      ▼
              make room (evict the replacer's victim; write it first if it is new)
                      │
                      ▼
              read from the page file ──▶ frame ──▶ guard

What counts against the budget: the bytes of every frame, what callers have reserved (sort space,
rows waiting to be written), and room for the copy that LMDB keeps of a transaction's pages.  A
frame is as large as its page's bytes, so half-empty pages cost half.  Decoding costs next to
nothing: the columns are views of the frame.  Where the views of very many columns take more than an
eighth of its bytes, they last as long as a pin.

New pages are written late: when they are evicted, or when a step is completed.  A window that fits
the budget therefore never touches the disk.

Invariants, all of them in `check`:
* frames + reservations + write space <= budget;
* a pinned page is in a frame, and a page being read is pinned by its reader;
* a page that was dropped while pinned leaves with its last pin.

One lock guards the state.  Reads of pages run outside it, so that two workers and a prefetcher
overlap; whoever wants a page that is being read waits for that read.  A second one, `turn`, makes
the calls on a store and its windows run one after the other; the pool never takes it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from .counters import Counters
from .errors import BudgetError, InputError, StoreError
from .frame import Frame, Kind, Pinned
from .layout import Page, PageId, Piece, decode_page, schema_mark
from .pagefile import TRANSACTION_BYTES_MAX, PageFile
from .replacer import LeastRecentlyUsed, Replacer
from .trace import NO_MATE, NoTrace, Trace
from .turns import Turn
from .units import format_size

Check = Callable[[Page, pa.Buffer], None]
FRAMES_MIN = 32


def smallest_budget(page_size: int) -> int:
    """The least budget in which every storage operation works."""
    return FRAMES_MIN * page_size


class BufferPool:
    """Frames over a page file."""

    def __init__(
        self,
        file: PageFile,
        *,
        budget_bytes: int,
        replacer: Replacer | None = None,
        trace: Trace | None = None,
    ) -> None:
        smallest = smallest_budget(file.page_size)
        if budget_bytes < smallest:
            raise BudgetError(
                f"a budget of {format_size(budget_bytes)} is too small for pages of "
                f"{format_size(file.page_size)}; the smallest that works is "
                f"{format_size(smallest)} ({smallest} bytes)",
                smallest_bytes=smallest,
            )
        self.file = file
        self.budget_bytes = budget_bytes
        self.counters = Counters()
        self.epoch = 0
        self.write_space = min(max(budget_bytes // 8, file.page_size), TRANSACTION_BYTES_MAX)
        self._replacer = replacer or LeastRecentlyUsed()
        self._trace = trace or NoTrace()
        self._frames: dict[PageId, Frame] = {}
        self._kinds: dict[int, Kind] = {}
        self._aside: set[int] = set()
        self._numbers_free: list[int] = []
        self._numbers_used = 0
        self._frame_bytes = 0
        self._reserved_bytes = 0
        self._large: dict[PageId, int] = {}
        self._unchecked: dict[PageId, Check] = {}
        self._is_closed = False
        self._lock = Turn(file.where)
        self.turn = Turn(file.where)

    # ── windows ──────────────────────────────────────────────────────────────────────────────

    def register(self, window: int, name: str, schema: pa.Schema) -> None:
        """Tell the pool what a window's pages look like."""
        self._kinds[window] = Kind(name, schema, schema_mark(schema))

    def unregister(self, window: int) -> None:
        """Forget a window that has no pages any more."""
        self._kinds.pop(window, None)
        self._aside.discard(window)

    def set_aside(self, window: int) -> None:
        """A window that sorts nothing needs no share of what sorting may take."""
        self._aside.add(window)

    @property
    def windows(self) -> int:
        """How many windows share the budget."""
        return len(self._kinds) - len(self._aside)

    def name_of(self, window: int) -> str:
        """A window's name in traces."""
        return self._kinds[window].name if window in self._kinds else ""

    def mark(self, window: int) -> int:
        """The checksum of a window's schema, which its pages carry."""
        return self._kind(window).mark

    def _kind(self, window: int) -> Kind:
        kind = self._kinds.get(window)
        if kind is None:
            raise InputError(f"window {window} was dropped; make it again")
        return kind

    def adopt(self, sizes: Mapping[PageId, int], check: Check) -> None:
        """Tell the pool of pages that it has not made itself: how large they are, and how to check
        what is on them when they are first read."""
        with self._lock:
            self._expect(sizes)
            self._unchecked.update(dict.fromkeys(sizes, check))

    def _expect(self, sizes: Mapping[PageId, int]) -> None:
        self._large.update((p, s) for p, s in sizes.items() if s > self.file.page_size)

    # ── pages in ─────────────────────────────────────────────────────────────────────────────

    def pin(self, page_id: PageId, why: str = "") -> Pinned:
        """Hold a page in a frame, reading it if it is not there."""
        frame = self._claim(page_id, why)
        try:
            if frame.page is None:
                frame.page = self._decoded(page_id, frame.data)
        except BaseException:
            self._unpin(page_id, frame)
            raise
        return Pinned(page_id, frame.page, partial(self._unpin, page_id, frame))

    def _decoded(self, page_id: PageId, data: pa.Buffer) -> Page:
        kind = self._kind(page_id.window)
        page = decode_page(data, kind.schema, kind.mark)
        check = self._unchecked.get(page_id)
        if check is not None:
            check(page, data)
            self._unchecked.pop(page_id, None)
        return page

    def copied(self, pieces: Sequence[Piece]) -> list[pa.Buffer]:
        """Copies of pieces of loose pages, for whoever has reserved room for them."""
        found: list[pa.Buffer | None] = []
        with self._lock:
            for page_id, start, size, _ in pieces:
                frame = self._resident(page_id)
                data = None if frame is None else frame.data
                # A slice would keep the whole page's memory, which nobody would count.
                found.append(data and pa.py_buffer(data.slice(start, size).to_pybytes()))
        missing = [piece for piece, data in zip(pieces, found, strict=True) if data is None]
        read = iter(self.file.read_pieces(missing))
        return [next(read) if data is None else data for data in found]

    def finish(self, pages: Sequence[PageId], why: str = "") -> None:
        """Give up pages of which every piece has been copied: each counts as read once."""
        self.looked_at(pages, why)
        self.drop(pages, why)

    def looked_at(self, pages: Iterable[PageId], why: str = "") -> None:
        """Count pages of which pieces have been copied."""
        with self._lock:
            for page_id in pages:
                frame = self._resident(page_id)
                for event in ("read" if frame is None else "hit", "pin", "unpin"):
                    self._count(event, page_id, frame, why)

    def prefetch(self, page_id: PageId) -> bool:
        """Read a page into a frame without pinning it; False where there is no room."""
        try:
            self._unpin(page_id, self._claim(page_id, "prefetch"))
        except BudgetError:
            return False
        return True

    def _claim(self, page_id: PageId, why: str) -> Frame:
        with self._lock:
            frame = self._resident(page_id)
            if frame is not None:
                frame.pins += 1
                self._count("hit", page_id, frame, why)
                self._count("pin", page_id, frame, why)
                self._replacer.used(page_id)
                return frame
            size = self._large.get(page_id, self.file.page_size)
            frame = self._admit(page_id, size, is_dirty=False)
            self._count("fetch", page_id, frame, why)
        try:
            data = self.file.read(page_id)
        except BaseException:
            with self._lock:
                self._remove(page_id)
                self._lock.notify_all()
            raise
        return self._loaded(page_id, frame, data, why)

    def _resident(self, page_id: PageId) -> Frame | None:
        """The page's frame once it is readable; None when it has to be read."""
        while (frame := self._frames.get(page_id)) is not None and frame.data is None:
            self._lock.wait()
        return frame

    def _loaded(self, page_id: PageId, frame: Frame, data: pa.Buffer, why: str) -> Frame:
        with self._lock:
            try:
                self._resize(frame, data.size)
            except BaseException:
                if page_id in self._frames:  # unless the pool was closed meanwhile
                    self._remove(page_id)
                self._lock.notify_all()
                raise
            frame.data = data
            self._count("read", page_id, frame, why)
            self._count("pin", page_id, frame, why)
            self._lock.notify_all()
        return frame

    def put(self, page_id: PageId, data: pa.Buffer, why: str = "", *, keep: bool = False) -> None:
        """Give the pool a new page.  It is written when it must leave, or by `flush`.

        With `keep` it stays in its frame until it is dropped.
        """
        with self._lock:
            self._expect({page_id: data.size})
            frame = self._admit(page_id, data.size, is_dirty=True)
            frame.data = data
            frame.is_kept = keep
            self._count("make", page_id, frame, why)

    def _admit(self, page_id: PageId, size: int, *, is_dirty: bool) -> Frame:
        self._make_room(size)
        if self._numbers_free:
            number = heapq.heappop(self._numbers_free)
        else:
            number, self._numbers_used = self._numbers_used, self._numbers_used + 1
        is_being_read = not is_dirty
        frame = Frame(number, size, None, is_dirty, pins=int(is_being_read))
        self._frames[page_id] = frame
        self._grow(frame_bytes=size)
        self._replacer.used(page_id)
        return frame

    def _resize(self, frame: Frame, size: int) -> None:
        if size > frame.size:
            self._make_room(size - frame.size)
        self._grow(frame_bytes=size - frame.size)
        frame.size = size

    def _unpin(self, page_id: PageId, frame: Frame) -> None:
        if self._lock.is_inherited:  # a forked child's copy may be thrown away in silence
            return
        with self._lock:
            assert frame.pins > 0, page_id
            frame.pins -= 1
            self._count("unpin", page_id, frame, "")
            if frame.pins == 0 and frame.is_bulky:
                frame.page = None
            if frame.is_dropped and frame.pins == 0 and page_id in self._frames:
                self._remove(page_id)

    # ── pages out ────────────────────────────────────────────────────────────────────────────

    def drop(self, pages: Iterable[PageId], why: str = "", *, event: str = "drop") -> None:
        """Give up pages: they leave the page file, and their frames once nobody pins them."""
        with self._lock:
            written = []
            for page_id in pages:
                frame = self._resident(page_id)
                self._count(event, page_id, frame, why)
                self._large.pop(page_id, None)
                self._unchecked.pop(page_id, None)
                if frame is None or not frame.is_dirty:
                    written.append(page_id)
                if frame is not None:
                    frame.is_dropped, frame.is_dirty = True, False
                    if frame.pins == 0:
                        self._remove(page_id)
            if written:
                self.file.free(written)

    def evict(self, page_id: PageId, why: str = "") -> bool:
        """Let an unpinned page leave its frame; False when it is not there or is pinned."""
        with self._lock:
            if not self._may_go(page_id):
                return False
            self._evict(page_id, why)
            return True

    def flush(self, why: str = "flush") -> None:
        """Write every new page."""
        with self._lock:
            while self._write_back(self._frames, why):
                pass

    def _make_room(self, size: int) -> None:
        if self._is_closed:
            raise StoreError(f"{self.file.where} is closed; open the store again")
        while self._spent + size > self.budget_bytes:
            victim = self._replacer.victim(self._may_go)
            if victim is None:
                raise self._too_small(size)
            self._evict(victim, "room")

    def _may_go(self, page_id: PageId) -> bool:
        frame = self._frames.get(page_id)
        return frame is not None and frame.pins == 0 and not frame.is_kept

    def _evict(self, page_id: PageId, why: str) -> None:
        frame = self._frames[page_id]
        if frame.is_dirty:
            self._write_back(self._going_first(page_id), why)
        self._count("evict", page_id, frame, why)
        self._remove(page_id)

    def _going_first(self, page_id: PageId) -> Iterator[PageId]:
        """The victim, then the other pages that may go: one transaction serves many."""
        yield page_id
        for other in self._frames:
            if other != page_id and self._may_go(other):
                yield other

    def _write_back(self, candidates: Iterable[PageId], why: str) -> bool:
        """Write new pages in one transaction, no larger than the write space allows."""
        pages: list[tuple[PageId, pa.Buffer]] = []
        size = 0
        for page_id in candidates:
            frame = self._frames[page_id]
            if not frame.is_dirty:
                continue
            record_size = self.file.stored_bytes(page_id, frame.size)
            if pages and size + record_size > self.write_space:
                break
            pages.append((page_id, frame.data))
            size += record_size
        if pages:
            self.file.write(pages)
            # What was freed meanwhile, or Arrow keeps it: 64 MB beside a budget of 16, now 40.
            pa.default_memory_pool().release_unused()
        for page_id, _ in pages:
            self._frames[page_id].is_dirty = False
            self._count("write", page_id, self._frames[page_id], why)
        return bool(pages)

    def _remove(self, page_id: PageId) -> None:
        frame = self._frames.pop(page_id)
        self._replacer.gone(page_id)
        self._grow(frame_bytes=-frame.size)
        heapq.heappush(self._numbers_free, frame.number)

    # ── budget ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Room outside of frames, for the length of a block."""
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def take(self, size: int) -> None:
        """Take room outside of frames, until it is given back."""
        with self._lock:
            self._make_room(size)
            self._grow(reserved_bytes=size)

    def give_back(self, size: int) -> None:
        """Give back room that was taken."""
        if self._lock.is_inherited:
            return
        with self._lock:
            assert size <= self._reserved_bytes
            self._grow(reserved_bytes=-size)

    @property
    def _spent(self) -> int:
        return self._frame_bytes + self._reserved_bytes + self.write_space

    @property
    def held_bytes(self) -> int:
        """What can't be evicted now: pinned pages and reservations."""
        with self._lock:
            frames = self._frames.values()
            pinned = sum(frame.size for frame in frames if frame.pins or frame.is_kept)
            return pinned + self._reserved_bytes

    def _grow(self, *, frame_bytes: int = 0, reserved_bytes: int = 0) -> None:
        self._frame_bytes += frame_bytes
        self._reserved_bytes += reserved_bytes
        self.counters.bytes_peak = max(self.counters.bytes_peak, self._spent)

    def _too_small(self, size: int) -> BudgetError:
        held = self.held_bytes - self._reserved_bytes
        smallest = held + self._reserved_bytes + size
        smallest = max(-(-smallest * 8 // 7), smallest + self.file.page_size)
        return BudgetError(
            f"the budget of {format_size(self.budget_bytes)} is used up: "
            f"{format_size(held)} pinned, {format_size(self._reserved_bytes)} reserved, "
            f"{format_size(self.write_space)} for writing, {format_size(size)} wanted; "
            f"give at least {format_size(smallest)} ({smallest} bytes)",
            smallest_bytes=smallest,
        )

    # ── what happened ────────────────────────────────────────────────────────────────────────

    def _count(self, event: str, page_id: PageId, frame: Frame | None, why: str) -> None:
        size = frame.size if frame else 0
        number = frame.number if frame else -1
        self.counters.count(event, size)
        name = self.name_of(page_id.window)
        self._trace.record(event, name, page_id.page, number, size, self.epoch, why)

    def note(
        self,
        event: str,
        window: str,
        why: str,
        *,
        page: int = -1,
        mate: tuple[str, int] = NO_MATE,
    ) -> None:
        """Put a decision, a visit or a completed step into the trace."""
        with self._lock:
            self._trace.record(event, window, page, -1, 0, self.epoch, why, mate)

    @property
    def is_traced(self) -> bool:
        """Whether anybody reads what is noted: a reason that costs something can be left out."""
        return not isinstance(self._trace, NoTrace)

    @property
    def frames(self) -> int:
        """How many pages are in frames."""
        return len(self._frames)

    def is_resident(self, page_id: PageId) -> bool:
        """Whether the page is in a frame."""
        return page_id in self._frames

    def check(self) -> None:
        """Raise `AssertionError` unless every invariant holds."""
        with self._lock:
            frames = self._frames.values()
            assert self._frame_bytes == sum(frame.size for frame in frames)
            assert self._reserved_bytes >= 0
            assert self._spent <= self.budget_bytes, (self._spent, self.budget_bytes)
            assert self.counters.bytes_peak <= self.budget_bytes
            assert all(frame.pins >= 0 for frame in frames)
            assert all(frame.pins > 0 for frame in frames if frame.data is None)
            assert all(frame.pins > 0 for frame in frames if frame.is_dropped)
            assert all(frame.data is None or frame.data.size == frame.size for frame in frames)
            numbers = sorted([*(frame.number for frame in frames), *self._numbers_free])
            assert numbers == list(range(self._numbers_used))
            assert self.counters.pins == self.counters.hits + self.counters.reads

    def close(self) -> None:
        """Forget all frames, pinned or not."""
        if self._lock.is_inherited:
            return
        with self._lock:
            self._is_closed = True
            for page_id in list(self._frames):
                self._remove(page_id)
