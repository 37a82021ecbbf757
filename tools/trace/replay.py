"""`matwin trace replay`: what other budgets, modes and replacements would have cost.

Two questions are answered, each with a table and a curve over the number of frames:

    plans   each walk's layout is planned again:        frames × mode        ▶ page reads
    uses    the trace's own sequence of page uses,      frames × replacement ▶ page reads
            as it was, under LRU, FIFO and the best that hindsight allows;
            with --plan, of that walk alone, from empty frames

The bound beside the modes is the number of pages that meet another: each is read at least once.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from matwin.scheduler import MODES, plan
from matwin.scheduler.choose import FRAMES_MIN
from matwin.storage.errors import InputError
from matwin.text import cut, escaped, plot, table
from matwin.tools.answers import tell_answer

from .arguments import PLANS_SHOWN
from .caches import REPLACEMENTS, Uses
from .events import Bools, Events
from .walks import CONTESTED, FRAMES_MAX, Walked, walk_number, walks

FRAMES_SHOWN = 10
FRAMES_ASKED_MAX = 48
PAIRS_QUICK = 2_000_000
PAIRS_MAX = 2**31
_HIDES = "where they meet, the last of these is shown"


def run(args: argparse.Namespace) -> int:
    """Print what it would have cost."""
    modes = _chosen("--mode", args.mode, MODES)
    replacements = _chosen("--replacement", args.replacement, REPLACEMENTS)
    frames = None if args.frames is None else parse_frames(args.frames)
    events = Events.open(args.file)
    every, chosen = _plans(events, args)
    part = chosen[0].part(events) if args.plan is not None else slice(None)
    uses = Uses.of(events, part)
    if not every and not uses.count:
        raise InputError(f"{events.source} has neither plans nor page uses to replay")
    planned = [replan(events, walk, frames, modes) for walk in chosen]
    used = reuse(events, part, uses, frames, replacements)
    found = {"plans_in_trace": len(every), "plans": planned, "uses": used}
    tell_answer(args, lambda: found, lambda: _text(found, modes, replacements))
    return 0


def _text(found: dict[str, Any], modes: list[str], replacements: list[str]) -> str:
    planned, every = found["plans"], found["plans_in_trace"]
    blocks = [_plan_text(plan, modes) for plan in planned]
    if every > len(planned) > 1:
        blocks.append(f"… and {every - len(planned):,} more plans; choose one with --plan")
    if not every:
        blocks.append("The trace has no plan: nothing in it was read by a schedule.")
    blocks.append(_uses_text(found["uses"], replacements))
    return "\n\n".join(blocks)


def _plans(events: Events, args: argparse.Namespace) -> tuple[list[Walked], list[Walked]]:
    every = walks(events)
    if args.plan is not None or (args.mode is not None and not every):
        return every, [walk_number(events, args.plan or 0)]
    return every, every[:PLANS_SHOWN]


def _chosen(option: str, asked: str | None, known: tuple[str, ...]) -> list[str]:
    if asked in (None, "all"):
        return list(known)
    if asked not in known:
        raise InputError(f"{option} {escaped(str(asked))}: choose one of {', '.join(known)}, all")
    return [str(asked)]


def parse_frames(text: str) -> list[int]:
    """Numbers of frames as they are given on the command line.

    >>> parse_frames("4"), parse_frames("8,4"), parse_frames("4..7")
    ([4], [4, 8], [4, 5, 6, 7])
    """
    first, dots, last = text.partition("..")
    if dots:
        low, high = _frames(first, text), _frames(last, text)
        if low > high:
            raise InputError(f"--frames {escaped(text)}: the first number is the larger one")
        return _spread(low, high, FRAMES_ASKED_MAX)
    return sorted({_frames(part, text) for part in text.split(",")})


def _frames(part: str, text: str) -> int:
    part = part.strip()
    if not part.lstrip("-").isascii() or not part.lstrip("-").isdigit():
        raise InputError(f"--frames {escaped(text)}: give N, N,M,… or A..B")
    if part.startswith("-") or int(part[:12]) < FRAMES_MIN:
        raise InputError(
            f"--frames {escaped(text)}: a pair of pages takes {FRAMES_MIN} frames, so give at "
            f"least {FRAMES_MIN}"
        )
    if len(part) > 12 or int(part) > FRAMES_MAX:
        raise InputError(f"--frames {escaped(text)}: give at most {FRAMES_MAX:,}")
    return int(part)


def _spread(low: int, high: int, count: int) -> list[int]:
    """All numbers between, or about `count` of them at equal ratios."""
    if high - low < count:
        return list(range(low, high + 1))
    return sorted({int(n) for n in np.geomspace(low, high, count).round()} | {low, high})


# ── plans ────────────────────────────────────────────────────────────────────────────────────


def replan(
    events: Events, walk: Walked, frames: list[int] | None, modes: list[str]
) -> dict[str, Any]:
    """What a walk's layout costs with these frames in these modes."""
    if walk.reach.pairs > PAIRS_MAX:
        raise InputError(
            f"{events.source}, event {walk.seq}: {walk.reach.pairs:,} pairs are too many to plan "
            f"again; at most {PAIRS_MAX:,}"
        )
    counts = frames or _usual_frames(walk)
    useful = sorted({_useful(count, walk.node_count) for count in counts})
    planned = {(n, mode): _planned(walk, n, mode) for n in useful for mode in modes}
    costs = [
        {"frames": count, "mode": mode, **planned[_useful(count, walk.node_count), mode]}
        for count in counts
        for mode in modes
    ]
    return {
        "plan": walk.number,
        "seq": walk.seq,
        "left": walk.left,
        "right": walk.right,
        "left_pages": walk.left_count,
        "right_pages": walk.right_count,
        "is_self": walk.is_self,
        "pairs": walk.reach.pairs,
        "mode": walk.mode,
        "frames": walk.frames,
        "page_reads": walk.page_reads,
        "reads": len(walk.uses(events, "read")[0]),
        "is_contested": walk.is_contested,
        "bound": walk.pages_needed,
        "costs": costs,
    }


def _planned(walk: Walked, frames: int, mode: str) -> dict[str, int]:
    schedule = plan(walk.reach, frames=frames, mode=mode)
    return {
        "page_reads": schedule.page_reads,
        "left_reads": schedule.left_reads,
        "right_reads": schedule.right_reads,
        "mode_switches": schedule.mode_switches,
    }


def _useful(frames: int, pages: int) -> int:
    """No more frames than pages: what a trace or a command line asks for costs no memory.

    >>> _useful(300_000_000, 14), _useful(4, 14), _useful(4, 1)
    (14, 4, 2)
    """
    return max(min(frames, pages), FRAMES_MIN)


def _usual_frames(walk: Walked) -> list[int]:
    """Around the frames that the plan had, up to where everything fits."""
    own = _useful(walk.frames, walk.node_count)
    if walk.reach.pairs > PAIRS_QUICK:
        return sorted({max(own // 2, FRAMES_MIN), own, _useful(2 * own, walk.node_count)})
    low = max(own // 4, FRAMES_MIN)
    high = max(min(4 * own, walk.pages_needed), own)
    return sorted({own, *_spread(low, high, FRAMES_SHOWN)})


def _plan_text(found: dict[str, Any], modes: list[str]) -> str:
    left, right = cut(escaped(found["left"]), 32), cut(escaped(found["right"]), 32)
    sides = (
        f"{left} with itself, {found['left_pages']:,} pages"
        if found["is_self"]
        else f"{left} ({found['left_pages']:,} pages) × {right} ({found['right_pages']:,} pages)"
    )
    reads = {(cost["frames"], cost["mode"]): cost["page_reads"] for cost in found["costs"]}
    frames = sorted({count for count, _ in reads})
    bound = found["bound"]
    best = {count: min(reads[count, mode] for mode in modes) for count in frames}
    pages = found["left_pages"] + (0 if found["is_self"] else found["right_pages"])
    own = {found["frames"], _useful(found["frames"], pages)}
    rows = [
        [
            f"{count:,}{' ←' if count in own else '  '}",
            *(f"{reads[count, mode]:,}" for mode in modes),
            f"{bound:,}",
            f"{best[count] / bound:.2f}×" if bound else "–",
        ]
        for count in frames
    ]
    series = {mode[0].upper(): [reads[count, mode] for count in frames] for mode in modes}
    letters = ", ".join(f"{mode[0].upper()} {mode}" for mode in modes)
    lines = [
        f"plan {found['plan']}, event {found['seq']}: {sides}, {found['pairs']:,} pairs",
        f"it ran {cut(escaped(found['mode']), 16)} in {found['frames']:,} frames (←): "
        f"{found['page_reads']:,} page reads planned, {found['reads']:,} made",
        "",
        table(["frames  ", *modes, "bound", "best"], rows, ">" * (len(modes) + 3)),
    ]
    if found["is_contested"]:
        lines.insert(2, CONTESTED)
    if len(frames) > 1:
        curve = plot([f"{count}" for count in frames], {"─": [bound] * len(frames), **series})
        lines += [
            "",
            curve,
            f"page reads over frames: {letters}, ─ bound; {_HIDES}",
        ]
    return "\n".join(lines)


# ── uses ─────────────────────────────────────────────────────────────────────────────────────


def reuse(
    events: Events,
    part: Bools | slice,
    uses: Uses,
    frames: list[int] | None,
    replacements: list[str],
) -> dict[str, Any]:
    """What the trace's own page uses cost with these frames under these replacements."""
    seen = len(np.unique(uses.pages))
    numbers = events.frame[part]
    in_use = len(np.unique(numbers[numbers >= 0]))
    low = max(min(in_use, seen) // 8, FRAMES_MIN)
    usual = _spread(low, max(seen, low), FRAMES_SHOWN)
    counts = frames or sorted({*usual, max(in_use, FRAMES_MIN)})
    return {
        "uses": uses.count,
        "makes": uses.makes,
        "pages": seen,
        "reads": int(events.of_kind("read")[part].sum()),
        "frames_peak": in_use,
        "costs": [
            {"frames": n, "replacement": name, "reads": uses.reads(name, n)}
            for n in counts
            for name in replacements
        ],
    }


def _uses_text(found: dict[str, Any], replacements: list[str]) -> str:
    reads = {(cost["frames"], cost["replacement"]): cost["reads"] for cost in found["costs"]}
    frames = sorted({count for count, _ in reads})
    real = found["reads"]
    head = (
        f"page uses: {found['uses']:,} uses and {found['makes']:,} new pages, "
        f"{found['pages']:,} pages in all\n"
        f"there were {real:,} reads, with {found['frames_peak']:,} frames in use at most (←)"
    )
    if not found["uses"]:
        return head
    rows = [
        [
            f"{count:,}{' ←' if count == found['frames_peak'] else '  '}",
            *(cell for name in replacements for cell in _beside(reads[count, name], real)),
        ]
        for count in frames
    ]
    titles = [title for name in replacements for title in (name, "of real")]
    lines = [head, "", table(["frames  ", *titles], rows, ">" * (2 * len(replacements) + 1))]
    if len(frames) > 1:
        series = {name[0].upper(): [reads[n, name] for n in frames] for name in replacements}
        letters = ", ".join(f"{name[0].upper()} {name}" for name in replacements)
        lines += ["", plot([f"{n}" for n in frames], series)]
        lines.append(f"page reads over frames: {letters}; {_HIDES}")
    return "\n".join(lines)


def _beside(reads: int, real: int) -> tuple[str, str]:
    return f"{reads:,}", f"{100 * reads / real:.0f}%" if real else "–"
