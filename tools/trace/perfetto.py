"""`matwin trace perfetto`: a trace as Chrome trace events, which Perfetto and other viewers draw.

    windows   frames in use   ▁▂▃▃▄▄▄▅▅▅▄▄     counters
              hit rate        ▁▁▁▂▂▂▃▃▃▃▃▃
              door            [read 68][read 69]  ·write 4 ·evict 3       one track for each window
              lift               [read 68]  ·evict 4
    epochs    epoch           [epoch 1      ][epoch 2    ]                of a continuous query
    walks     walk            [door × lift: [gallop      ][crabstep     ]]
              visit              [door 68 × lift 68][door 69 × lift 68]

Reads, visits, walks and modes are slices, from their first event to their last; whatever has no
length is an instant.  Pins and unpins are left out: they would double the file, and the counter of
frames tells what they lead to.  Every slice and instant has the number of its event, with which the
page of `matwin trace html` can be opened: ``walk.html#t=2805``.

Slices of one track must not overlap, so those that do go to another one of the same name with a
number: ``door (2)``.

Text is made of columns, not of single events: a million of them take 1.3 s of
CPU with all imports, 0.7 s without.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.kernel import kernel

from . import exporting
from .arguments import PERFETTO_SUFFIX
from .epochs import epochs
from .events import Events, Int64s, paired
from .frames import frames_in_use
from .packed import reasons
from .walks import Walked, walks

WINDOWS, WALKS, EPOCHS = 1, 2, 3  # what the format calls processes
INSTANTS = ("make", "hit", "write", "evict", "drop", "expire", "choose", "complete")
LANES_MAX = 64  # tracks of one name; what overlaps even more is drawn over each other
WALK, VISIT = 0, 1  # the groups of tracks among the walks
PART = 1 << 16  # events that become text at once


def run(args: argparse.Namespace) -> int:
    """Write the trace events."""
    return exporting.export(args, PERFETTO_SUFFIX, json_of)


def json_of(events: Events, name: str) -> Iterator[str]:
    """The file, piece by piece; `name` is what it calls the trace."""
    other = json.dumps({**events.settings, "trace": name})
    yield f'{{"displayTimeUnit":"ns","otherData":{other},"traceEvents":[\n'
    mark = ""
    for objects in _Export(events).objects():
        every = pa.ListArray.from_arrays(pa.array([0, len(objects)], pa.int32()), objects)
        yield mark + pc.binary_join(every, ",\n")[0].as_py()
        mark = ",\n"
    yield "\n]}\n"


class _Export:
    """The parts of the file, each an array of JSON objects."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.walks = walks(events)
        whys, self.why = reasons(events, self.walks)
        self.whys = pa.array(map(json.dumps, whys), pa.utf8())
        self.names = pa.array([json.dumps(name)[1:-1] for name in events.names], pa.utf8())

    def objects(self) -> Iterator[pa.Array]:
        """All of it."""
        yield from self._of_windows()
        yield from self._of_walks()
        yield from self._of_epochs()
        yield from self._counter("frames in use", "frames", *frames_in_use(self.events))
        yield from self._counter("hit rate", "percent", *_hit_rates(self.events))

    def _of_windows(self) -> Iterator[pa.Array]:
        starts, ends = self._reads()
        tracks = _tracks(self.events, self.events.window[ends], starts, ends)
        instants = self.events.places_of(*INSTANTS)
        yield self._named(WINDOWS, "windows", self._window_tracks(tracks, instants))
        for part in _parts(len(starts)):
            yield self._read(starts[part], ends[part], tracks[part])
        for part in _parts(len(instants)):
            yield self._instants(instants[part])

    def _of_walks(self) -> Iterator[pa.Array]:
        count = len(self.walks)
        (walk, walked), (visit, visited) = self._walked(), self._visits()
        starts, ends = np.append(walk, visit), np.append(walked, visited)
        tracks = _tracks(self.events, np.repeat([WALK, VISIT], [count, len(visit)]), starts, ends)
        yield self._named(WALKS, "walks", _group_tracks(tracks))
        for at, track in enumerate(tracks[:count].tolist()):
            yield self._walk(self.walks[at], track)
        for part in _parts(len(visit)):
            yield self._visit(visit[part], visited[part], tracks[count:][part])

    def _of_epochs(self) -> Iterator[pa.Array]:
        """The epochs of a continuous query, which follow each other on one track."""
        found = epochs(self.events)
        if not found:
            return
        yield self._named(EPOCHS, "epochs", {1: "epoch"})
        starts, ends = (np.array([each[name] for each in found]) for name in ("start", "end"))
        names = pa.array([f'"epoch {each["epoch"]}"' for each in found])
        tracks = np.ones(len(found), np.int64)
        yield self._spans('"epoch"', EPOCHS, starts, ends, tracks, names, self._args(ends))

    # ── where things begin and end ───────────────────────────────────────────────────────────────

    def _reads(self) -> tuple[Int64s, Int64s]:
        """Where each read begins and ends; one that the trace does not see begin has no length."""
        events = self.events
        ends = events.places_of("read")
        begin, end = paired(events.places_of("fetch"), ends, events.identity)
        starts = ends.copy()
        starts[np.searchsorted(ends, end)] = begin
        return starts, ends

    def _visits(self) -> tuple[Int64s, Int64s]:
        """Where each visit begins and ends; one that does not end in the trace has no length."""
        events = self.events
        starts = events.places_of("visit")
        pairs = events.identity * (len(events.identities[0]) + 1) + events.mate_identity
        begin, end = paired(starts, events.places_of("visited"), pairs)
        ends = starts.copy()
        ends[np.searchsorted(starts, begin)] = end
        return starts, ends

    def _walked(self) -> tuple[Int64s, Int64s]:
        starts = np.array([walk.start for walk in self.walks], np.int64)
        return starts, np.array([walk.end - 1 for walk in self.walks], np.int64)

    # ── names of tracks ──────────────────────────────────────────────────────────────────────────

    def _window_tracks(self, reads: Int64s, instants: Int64s) -> dict[int, str]:
        used = np.append(reads, _first_track(self.events.window[instants]))
        names = [name or "store" for name in self.events.names]
        return {track: _track_name(names[group], lane) for track, group, lane in _split(used)}

    def _named(self, process: int, name: str, tracks: dict[int, str]) -> pa.Array:
        given: list[tuple[str, int, dict[str, object]]] = [
            ("process_name", 0, {"name": name}),
            ("process_sort_index", 0, {"sort_index": process}),
        ]
        for track, told in tracks.items():
            given += [
                ("thread_name", track, {"name": told}),
                ("thread_sort_index", track, {"sort_index": track}),
            ]
        return pa.array(
            json.dumps({"ph": "M", "pid": process, "tid": track, "ts": 0, "name": what, "args": of})
            for what, track, of in given
        )

    # ── slices, instants and counters ────────────────────────────────────────────────────────────

    def _read(self, starts: Int64s, ends: Int64s, tracks: Int64s) -> pa.Array:
        name = _joined('"read ', _numbers(self.events.page[ends]), '"')
        return self._spans('"read"', WINDOWS, starts, ends, tracks, name, self._args(ends))

    def _visit(self, starts: Int64s, ends: Int64s, tracks: Int64s) -> pa.Array:
        events = self.events
        left, right = (
            _joined(self.names.take(pa.array(windows[starts])), " ", _numbers(pages[starts]))
            for windows, pages in (
                (events.window, events.page),
                (events.mate_window, events.mate_page),
            )
        )
        args = _objects({"event": _numbers(events.seq[starts])})
        name = _joined('"', left, " × ", right, '"')
        return self._spans('"visit"', WALKS, starts, ends, tracks, name, args)

    def _walk(self, walk: Walked, track: int) -> pa.Array:
        """A walk, and its modes inside."""
        modes = walk.places_of(self.events, "mode")
        starts = np.append(walk.start, modes)
        ends = np.append(walk.end - 1, np.append(modes, walk.end - 1)[1:])[: len(starts)]
        told = [why.partition(": ")[0] for why in self.events.whys(modes)]
        names = [f"{walk.mode}: {walk.left} × {walk.right}", *told]
        tracks = np.full(len(starts), track)
        name = pa.array(map(json.dumps, names), pa.utf8())
        kinds = pa.array(['"walk"', *['"mode"'] * len(modes)])
        return self._spans(kinds, WALKS, starts, ends, tracks, name, self._args(starts))

    def _spans(
        self, kind: pa.Array | str, process: int, starts: Int64s, ends: Int64s, tracks: Int64s,
        name: pa.Array, args: pa.Array,
    ) -> pa.Array:  # fmt: skip
        begun, ended = (self.events.time_ns[at].astype(np.float64) for at in (starts, ends))
        return _objects({
            "ph": '"X"', "cat": kind, "name": name, "pid": str(process),
            "tid": _numbers(tracks), "ts": _micros(begun),
            "dur": _micros(np.maximum(ended - begun, 0)), "args": args,
        })  # fmt: skip

    def _instants(self, at: Int64s) -> pa.Array:
        events = self.events
        kinds = events.table["event"].take(pa.array(at)).cast(pa.utf8()).combine_chunks()
        pages = np.where(events.page[at] < 0, "", np.char.add(" ", events.page[at].astype(str)))
        return _objects({
            "ph": '"i"', "s": '"t"', "cat": _joined('"', kinds, '"'),
            "name": _joined('"', kinds, pa.array(pages, pa.utf8()), '"'), "pid": str(WINDOWS),
            "tid": _numbers(_first_track(events.window[at])),
            "ts": _micros(events.time_ns[at].astype(np.float64)), "args": self._args(at),
        })  # fmt: skip

    def _args(self, at: Int64s) -> pa.Array:
        events = self.events
        columns = {"event": events.seq, "page": events.page, "frame": events.frame,
                   "bytes": events.size, "epoch": events.epoch}  # fmt: skip
        told = {name: _numbers(column[at]) for name, column in columns.items()}
        return _objects({**told, "why": self.whys.take(pa.array(self.why[at]))})

    def _counter(
        self, name: str, unit: str, places: Int64s, values: npt.NDArray[Any]
    ) -> Iterator[pa.Array]:
        """A counter's values, where they change."""
        is_new = np.diff(values, prepend=-1) != 0
        places, values = places[is_new], values[is_new]
        for part in _parts(len(places)):
            yield _objects({
                "ph": '"C"', "name": f'"{name}"', "pid": str(WINDOWS), "tid": "0",
                "ts": _micros(self.events.time_ns[places[part]].astype(np.float64)),
                "args": _objects({unit: _numbers(values[part])}),
            })  # fmt: skip


def _hit_rates(events: Events) -> tuple[Int64s, npt.NDArray[Any]]:
    """Where pages are used, and the hit rate so far, in percent."""
    places = events.places_of("hit", "read")
    hits = np.cumsum(events.of_kind("hit")[places])
    return places, np.round(100 * hits / np.arange(1, len(places) + 1), 1)


# ── tracks ───────────────────────────────────────────────────────────────────────────────────────


def _tracks(events: Events, groups: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """A track for each slice, so that those of one track don't overlap."""
    order = np.argsort(starts, kind="stable")
    found = np.empty(len(starts), np.int64)
    free_from = np.full((int(groups.max(initial=0)) + 1, LANES_MAX), -(2**63))
    times = events.time_ns
    lanes = np.empty(len(starts), np.int64)
    _lanes(groups[order], times[starts[order]], times[ends[order]], free_from, lanes)
    found[order] = _first_track(groups[order]) + lanes
    return found


@kernel
def _lanes(groups: Int64s, starts: Int64s, ends: Int64s, free_from: Int64s, lanes: Int64s) -> None:
    """The first lane of its group that is free when a slice begins, else the last."""
    for at in range(len(groups)):
        group = groups[at]
        lane = 0
        while lane < free_from.shape[1] - 1 and free_from[group, lane] > starts[at]:
            lane += 1
        free_from[group, lane] = max(free_from[group, lane], ends[at])
        lanes[at] = lane


def _first_track(groups: Int64s) -> Int64s:
    return groups * LANES_MAX + 1


def _split(tracks: Int64s) -> list[tuple[int, int, int]]:
    """The different tracks, each with its group and lane."""
    found = np.unique(tracks)
    return [(track, *divmod(track - 1, LANES_MAX)) for track in found.tolist()]


def _group_tracks(tracks: Int64s) -> dict[int, str]:
    return {
        track: _track_name(("walk", "visit")[group], lane) for track, group, lane in _split(tracks)
    }


def _track_name(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


# ── text of columns ──────────────────────────────────────────────────────────────────────────────


def _parts(count: int) -> list[slice]:
    return [slice(start, start + PART) for start in range(0, count, PART)]


def _objects(fields: dict[str, pa.Array | str]) -> pa.Array:
    """JSON objects; a field is text of JSON, one for each of them or one for all.

    >>> _objects({"ph": '"C"', "ts": _micros(np.array([5.0, 1500.0]))}).to_pylist()
    ['{"ph":"C","ts":0.005}', '{"ph":"C","ts":1.5}']
    """
    pieces: list[pa.Array | str] = []
    for name, value in fields.items():
        pieces += [f'{"," if pieces else "{"}"{name}":', value]
    return _joined(*pieces, "}")


def _joined(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values).cast(pa.utf8())


def _micros(nanoseconds: npt.NDArray[np.float64]) -> pa.Array:
    """Microseconds, as the format has them; exact to the nanosecond for a hundred days."""
    return _numbers(nanoseconds / 1000)
