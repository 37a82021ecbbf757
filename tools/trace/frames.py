"""How many frames hold a page, event by event.

    make, fetch           a page comes, and whatever was there is gone: a read may have failed
    evict, drop, expire   the page goes; while it is pinned, it goes with its last unpin

The page for the browser follows the frames in the same way (`page/model.js`).
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

from .events import KIND, Events, Int64s

COME, ARRIVE, PIN, UNPIN, LEAVE = range(5)
_ROLES = {
    "make": COME, "fetch": COME, "read": ARRIVE, "pin": PIN, "unpin": UNPIN,
    "evict": LEAVE, "drop": LEAVE, "expire": LEAVE,
}  # fmt: skip


def frames_in_use(events: Events) -> tuple[Int64s, Int64s]:
    """Where something happens to a frame, and how many frames hold a page after it."""
    places = events.places_of(*_ROLES)
    places = places[events.frame[places] >= 0]
    role_of = np.full(len(KIND), -1)
    for kind, role in _ROLES.items():
        role_of[KIND[kind]] = role
    numbers, frames = np.unique(events.frame[places], return_inverse=True)
    state = np.zeros((3, len(numbers)), np.int64)
    counts = np.zeros(len(places), np.int64)
    _follow(role_of[events.kind[places]], frames.astype(np.int64), state, counts)
    return places, counts


@kernel
def _follow(roles: Int64s, frames: Int64s, state: Int64s, counts: Int64s) -> None:
    """`state` has, for each frame, whether it holds a page, its pins, whether it was given up."""
    in_use = 0
    for at in range(len(roles)):
        role, frame = roles[at], frames[at]
        was_held = state[0, frame]
        if role == COME or (role == ARRIVE and not was_held):
            state[0, frame] = 1
            state[1, frame] = state[2, frame] = 0
        elif role == PIN:
            state[1, frame] += 1
        elif role == UNPIN:
            state[1, frame] = max(state[1, frame] - 1, 0)
            if state[2, frame] and state[1, frame] == 0:
                state[0, frame] = state[2, frame] = 0
        elif role == LEAVE:
            if state[1, frame] > 0:
                state[2, frame] = 1
            else:
                state[0, frame] = 0
        in_use += state[0, frame] - was_held
        counts[at] = in_use
