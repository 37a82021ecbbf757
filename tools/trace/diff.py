"""`matwin trace diff`: what differs between two traces.

    totals          A      B    B - A   B / A
    reads          36     25      -11   0.69×
    re-reads       19      8      -11   0.42×

Settings, totals, windows, modes, plans, and the pages whose reads differ most.  What is equal is
left out; times are not compared, since they differ always.  Two traces that agree print one line.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import zip_longest
from typing import Any

import numpy as np

from matwin.text import cut, escaped, table
from matwin.tools.answers import tell_answer

from .events import Events, Int64s
from .pages import page_table
from .summary import summarize

PAGES_SHOWN = 12
PLANS_SHOWN = 12
WINDOWS_SHOWN = 12
SETTINGS = ("page_size", "budget_bytes", "complete_steps")
PLAN_KEYS = (
    "mode", "left", "right", "left_pages", "right_pages", "is_self", "pairs", "frames",
    "page_reads", "reads", "rereads", "hits", "visits", "outcome",
)  # fmt: skip
Found = dict[str, Any]


def run(args: argparse.Namespace) -> int:
    """Print what differs."""
    a, b = Events.open(args.a), Events.open(args.b)
    found = differences(a, b)
    tell_answer(args, lambda: found, lambda: _text(a.source, b.source, found))
    return 0


def differences(a: Events, b: Events) -> Found:
    """Everything that `matwin trace diff --json` prints; all parts are empty when they agree."""
    one, other = summarize(a), summarize(b)
    return {
        "settings": _unequal({k: one[k] for k in SETTINGS}, {k: other[k] for k in SETTINGS}),
        "totals": _unequal(one["totals"], other["totals"]),
        "windows": _windows(one["windows"], other["windows"]),
        "modes": _unequal(_modes(one), _modes(other)),
        "plans": _plans(one["plans"], other["plans"]),
        "pages": _pages(a, b),
    }


def _unequal(one: Found, other: Found) -> Found:
    """The keys whose values differ, with both values."""
    keys = list(dict.fromkeys([*one, *other]))
    return {
        key: {"a": one.get(key), "b": other.get(key)}
        for key in keys
        if one.get(key) != other.get(key)
    }


def _windows(one: Found, other: Found) -> Found:
    found = {}
    for name in dict.fromkeys([*one, *other]):
        unequal = _unequal(one.get(name, {}), other.get(name, {}))
        if unequal:
            found[name] = unequal
    return found


def _modes(summary: Found) -> dict[str, int]:
    """How often each mode began."""
    return dict(Counter(mode["mode"] for mode in summary["modes"]))


def _plans(one: list[Found], other: list[Found]) -> list[Found]:
    found = []
    nothing: Found = {}
    for number, (a, b) in enumerate(zip_longest(one, other, fillvalue=nothing)):
        picked = [{key: plan.get(key) for key in PLAN_KEYS if key in plan} for plan in (a, b)]
        unequal = _unequal(*picked)
        if unequal:
            found.append({"plan": number, "differs": unequal})
    return found


def _pages(a: Events, b: Events) -> list[Found]:
    """The pages whose reads differ, the largest difference first."""
    names = {name: at for at, name in enumerate(dict.fromkeys([*a.names, *b.names]))}
    keys_a, reads_a = _reads(a, names)
    keys_b, reads_b = _reads(b, names)
    keys, at = np.unique(np.concatenate((keys_a, keys_b)), axis=0, return_inverse=True)
    both = np.zeros((2, len(keys)), np.int64)
    np.add.at(both[0], at[: len(keys_a)], reads_a)
    np.add.at(both[1], at[len(keys_a) :], reads_b)
    change = np.abs(both[1] - both[0])
    order = np.argsort(-change, kind="stable")
    order = order[change[order] > 0]
    listed = list(names)
    return [
        {
            "window": listed[keys[i, 0]],
            "page": int(keys[i, 1]),
            "a": int(both[0, i]),
            "b": int(both[1, i]),
        }
        for i in order.tolist()
    ]


def _reads(events: Events, names: dict[str, int]) -> tuple[Int64s, Int64s]:
    """(window, page) and reads of each page."""
    found = page_table(events)
    number = np.array([names[name] for name in events.names] or [0])
    return np.stack((number[found["window"]], found["page"]), 1), found["reads"]


# ── showing ──────────────────────────────────────────────────────────────────────────────────


def _text(a: str, b: str, found: Found) -> str:
    if not any(found.values()):
        return f"{a} and {b}: no difference"
    blocks = [f"A  {a}\nB  {b}"]
    for title in ("settings", "totals", "modes"):
        if found[title]:
            blocks.append(_side_by_side(title, found[title]))
    windows = list(found["windows"].items())
    blocks += [
        _side_by_side(f"window {cut(escaped(name), 32)}", unequal)
        for name, unequal in windows[:WINDOWS_SHOWN]
    ]
    if len(windows) > WINDOWS_SHOWN:
        blocks.append(f"… and {len(windows) - WINDOWS_SHOWN:,} more windows differ")
    shown = found["plans"][:PLANS_SHOWN]
    blocks += [_side_by_side(f"plan {plan['plan']}", plan["differs"]) for plan in shown]
    if len(found["plans"]) > len(shown):
        blocks.append(f"… and {len(found['plans']) - len(shown):,} more plans differ")
    if found["pages"]:
        blocks.append(_pages_text(found["pages"]))
    return "\n\n".join(blocks)


def _side_by_side(title: str, unequal: Found) -> str:
    rows = [
        [cut(escaped(key), 32).replace("_", " "), _value(pair["a"]), _value(pair["b"]),
         *_change(pair["a"], pair["b"])]
        for key, pair in unequal.items()
    ]  # fmt: skip
    return table([title, "A", "B", "B - A", "B / A"], rows, "<>>>>")


def _value(value: object) -> str:
    if isinstance(value, str):
        return cut(escaped(value), 24)
    if isinstance(value, bool) or value is None:
        return {None: "–", True: "yes", False: "no"}[value]
    return f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"


def _change(a: Any, b: Any) -> tuple[str, str]:
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (a, b))
    if not is_number:
        return "", ""
    delta = f"{b - a:+,.4f}" if isinstance(b - a, float) else f"{b - a:+,}"
    return delta, f"{b / a:.2f}×" if a else ""


def _pages_text(pages: list[Found]) -> str:
    rows = [
        [cut(escaped(page["window"]), 32), str(page["page"]), f"{page['a']:,}", f"{page['b']:,}",
         f"{page['b'] - page['a']:+,}"]
        for page in pages[:PAGES_SHOWN]
    ]  # fmt: skip
    text = table(["window", "page", "reads in A", "reads in B", "B - A"], rows, "<>>>>")
    more = len(pages) - len(rows)
    return text + (f"\n… and {more:,} more pages differ; --json has them all" if more else "")
