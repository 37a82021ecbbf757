"""Tuples found so far, each with the rows of one more stream that it can meet.

    access        rows lie in order of   candidates of a tuple
    merge         key, time              the key's stretch from `low` to `high`, side by side
    between       key, time              places `begin` to `end`, all of them
    scan          time                   the stretch from `low` to `high`, keys compared one by one
    scan places   time                   places `begin` to `end`, keys compared, times not
    chain         arrival                the key's chain, newest first, down to `low`
    chain places  time                   the key's chain between two places, times not compared

All fill arrays of tuple numbers and row numbers until these are full, and say where to go on: the
tuple, and the place within its candidates.  A place of -1 means the beginning.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

TIME, KEY, LATEST, BEFORE, JUMP, LENGTH, NEXT_LENGTH, LEAST = range(8)
"""Columns of a chain's nodes; `LATEST` is the latest time from the chain's beginning up to here.

A node also knows one further back, `JUMP`, how many nodes on it is, and the least time from itself
up to there.  The jumps are those of a skew-binary list: any place in a chain is a few times the
logarithm of its length away.  A hot key's chain is as long as the window, and a tuple that is older
than most of it would pass them all: 30,000 rows a side took 8 s, and 0.04 s with nested loops.

Tables and links count rows from the first that ever came: a row's number is `base` more than its
place among the nodes.  What is below `base` is gone."""
COLUMNS, COLUMNS_LINKED = 2, 8
"""Of rows that are not linked, and of those that are: a cache line each."""
GROUP = 128
"""Chains that are looked at together, before one after the other is followed."""
LOOK_AHEAD = 8
"""Nodes of each chain."""
STEPS = 16
"""Rows that are looked at one by one before a search begins."""
FIRST, LAST = -(2**63), 2**63 - 1
"""Keys and times."""


@kernel
def _is_below(keys, times, at, key, time):  # type: ignore[no-untyped-def]
    return keys[at] < key or (keys[at] == key and times[at] < time)


@kernel
def first_place(keys, times, hint, key, time):  # type: ignore[no-untyped-def]
    """The first row that is not below (key, time), looked for around `hint`."""
    rows = len(times)
    step = 1
    if hint < rows and _is_below(keys, times, hint, key, time):
        low = hint + 1
        while low + step <= rows and _is_below(keys, times, low + step - 1, key, time):
            low += step
            step *= 2
        high = min(low + step - 1, rows)
    else:
        high = hint
        while high - step >= 0 and not _is_below(keys, times, high - step, key, time):
            high -= step
            step *= 2
        low = max(high - step + 1, 0)
    while low < high:
        middle = (low + high) >> 1
        if _is_below(keys, times, middle, key, time):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _first_after(keys, times, hint, key, time):  # type: ignore[no-untyped-def]
    """The first row that is above (key, time), looked for around `hint`."""
    if time == LAST:
        if key == LAST:
            return len(times)
        key, time = key + 1, FIRST
    else:
        time += 1
    return first_place(keys, times, hint, key, time)


@kernel
def first_not_below(values, hint, value):  # type: ignore[no-untyped-def]
    """The first of ascending values that is not below `value`, looked for around `hint`."""
    rows = len(values)
    step = 1
    if hint < rows and values[hint] < value:
        low = hint + 1
        while low + step <= rows and values[low + step - 1] < value:
            low += step
            step *= 2
        high = min(low + step - 1, rows)
    else:
        high = hint
        while high - step >= 0 and values[high - step] >= value:
            high -= step
            step *= 2
        low = max(high - step + 1, 0)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(outputs=2)
def merge(keys, times, tuple_keys, lows, highs, tuple_, limit, place, out_tuples, out_rows):  # type: ignore[no-untyped-def]
    """Candidates in rows sorted by key and time.

    Tuples come mostly in order too, and the next one's rows are a few steps away: a plain loop
    finds them in a seventh of the time that galloping takes from the first step on.
    """
    rows, room, filled, start = len(times), len(out_rows), 0, 0
    key_before, low_before = FIRST, lows[tuple_] if tuple_ < limit else 0
    while tuple_ < limit:
        key, low, high = tuple_keys[tuple_], lows[tuple_], highs[tuple_]
        if place < 0:
            if key < key_before or (key == key_before and low < low_before):
                start = first_place(keys, times, start, key, low)
            else:
                end = start + STEPS
                while start < rows and keys[start] < key:
                    start += 1
                    if start == end:
                        start = first_not_below(keys, start, key)
                        break
                end = start + STEPS
                while start < rows and keys[start] == key and times[start] < low:
                    start += 1
                    if start == end:
                        start = first_place(keys, times, start, key, low)
                        break
            place, key_before, low_before = start, key, low
        while place < rows and keys[place] == key and times[place] <= high:
            if filled == room:
                return filled, tuple_, place
            out_tuples[filled] = tuple_
            out_rows[filled] = place
            filled += 1
            place += 1
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel(outputs=2)
def stretches(keys, times, own_keys, lows, highs, begins, ends):  # type: ignore[no-untyped-def]
    """For each of some rows the stretch of other rows, sorted by key and time, that have its key
    and a time in its interval: the two places."""
    own = len(lows)
    begin = first_place(keys, times, 0, own_keys[0], lows[0])
    limit = _first_after(keys, times, begin, own_keys[own - 1], highs[own - 1])
    if limit - begin <= STEPS * own and _is_ascending(own_keys, lows, highs):
        _merge_stretches(keys, times, own_keys, lows, highs, begin, limit, begins, ends)
        return
    for i in range(own):
        begin = first_place(keys, times, begin, own_keys[i], lows[i])
        begins[i] = begin
        ends[i] = begin
        if lows[i] <= highs[i]:
            ends[i] = _first_after(keys, times, begin, own_keys[i], highs[i])


@kernel
def _is_ascending(own_keys, lows, highs):  # type: ignore[no-untyped-def]
    """Whether intervals ascend within a key, and none is empty."""
    wrong = int(lows[0] > highs[0])
    for i in range(1, len(lows)):
        key, before = own_keys[i], own_keys[i - 1]
        falls = (lows[i] < lows[i - 1]) | (highs[i] < highs[i - 1])
        wrong |= int((key < before) | ((key == before) & falls) | (lows[i] > highs[i]))
    return wrong == 0


@kernel
def _merge_stretches(keys, times, own_keys, lows, highs, begin, limit, begins, ends):  # type: ignore[no-untyped-def]
    """Both places move on through the other rows together, by numbers and not by branches: which
    row comes next is anybody's guess, also the CPU's."""
    own, end = len(lows), begin
    i = j = 0
    while i < own and j < own and begin < limit and end < limit:
        begins[i] = begin
        ends[j] = end
        is_equal = keys[begin] == own_keys[i]
        is_below = int((keys[begin] < own_keys[i]) | (is_equal & (times[begin] < lows[i])))
        is_equal = keys[end] == own_keys[j]
        is_within = int((keys[end] < own_keys[j]) | (is_equal & (times[end] <= highs[j])))
        begin += is_below
        i += 1 - is_below
        end += is_within
        j += 1 - is_within
    while i < own:
        while begin < limit and _is_below(keys, times, begin, own_keys[i], lows[i]):
            begin += 1
        begins[i] = begin
        i += 1
    while j < own:
        key, high = own_keys[j], highs[j]
        while end < limit and (keys[end] < key or (keys[end] == key and times[end] <= high)):
            end += 1
        ends[j] = end
        j += 1


@kernel
def overlap(begins, ends, own_begins, own_ends, rows, first):  # type: ignore[no-untyped-def]
    """Bring the places of every tuple within those of its row, which are given from `first` on."""
    for i in range(len(rows)):
        at = rows[i] - first
        begins[i] = max(begins[i], own_begins[at])
        ends[i] = min(ends[i], own_ends[at])


@kernel(outputs=2)
def between(begins, ends, tuple_, limit, place, out_tuples, out_rows):  # type: ignore[no-untyped-def]
    """Candidates are all rows between two places."""
    room, filled = len(out_rows), 0
    while tuple_ < limit:
        if place < 0:
            place = begins[tuple_]
        count = min(ends[tuple_] - place, room - filled)
        for i in range(count):
            out_tuples[filled + i] = tuple_
            out_rows[filled + i] = place + i
        filled += max(count, 0)
        place += max(count, 0)
        if place < ends[tuple_]:
            return filled, tuple_, place
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel(outputs=2)
def scan(keys, times, tuple_keys, lows, highs, tuple_, limit, place, out_tuples, out_rows):  # type: ignore[no-untyped-def]
    """Candidates in rows sorted by time, whatever their keys."""
    rows, room, filled, hint = len(times), len(out_rows), 0, 0
    while tuple_ < limit:
        key, high = tuple_keys[tuple_], highs[tuple_]
        if place < 0:
            hint = first_not_below(times, hint, lows[tuple_])
            place = hint
        while place < rows and times[place] <= high:
            if keys[place] == key:
                if filled == room:
                    return filled, tuple_, place
                out_tuples[filled] = tuple_
                out_rows[filled] = place
                filled += 1
            place += 1
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel(outputs=2)
def scan_places(keys, tuple_keys, begins, ends, tuple_, limit, place, out_tuples, out_rows):  # type: ignore[no-untyped-def]
    """Candidates between two places."""
    room, filled = len(out_rows), 0
    while tuple_ < limit:
        key, end = tuple_keys[tuple_], ends[tuple_]
        if place < 0:
            place = begins[tuple_]
        while place < end:
            if keys[place] == key:
                if filled == room:
                    return filled, tuple_, place
                out_tuples[filled] = tuple_
                out_rows[filled] = place
                filled += 1
            place += 1
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel
def slot_of(table, nodes, base, key):  # type: ignore[no-untyped-def]
    """Where the key's chain is kept, or the free slot where it would be."""
    mask = len(table) - 1
    slot = _first_slot(mask, key)
    row = table[slot]
    while row >= 0 and (row < base or nodes[row - base, KEY] != key):
        slot = (slot + 1) & mask
        row = table[slot]
    return slot


@kernel
def _first_slot(mask, key):  # type: ignore[no-untyped-def]
    # Multiplied and folded: keys that differ in a few bits go to different places.
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))


@kernel
def _touch_heads(table, nodes, base, first, end, ahead):  # type: ignore[no-untyped-def]
    """Have the CPU fetch what linking some rows looks at (see `_look_ahead`): 63 ns a row in a
    window of 10M, not 92."""
    mask = len(table) - 1
    for i in range(end - first):
        ahead[i] = table[_first_slot(mask, nodes[first + i, KEY])]
    for _ in range(2):
        for i in range(end - first):
            if ahead[i] >= base:
                ahead[i] = nodes[ahead[i] - base, JUMP]


@kernel
def link(table, nodes, base, first, limit, room):  # type: ignore[no-untyped-def]
    """Put rows at the head of their keys' chains, while there is room for new ones; how many chains
    are new, and which row comes next."""
    new, end = 0, first
    ahead = np.empty(GROUP, np.int64)
    for row in range(first, limit):
        if new == room:
            return new, row
        if row == end:
            end = min(row + GROUP, limit)
            _touch_heads(table, nodes, base, row, end, ahead)
        slot = slot_of(table, nodes, base, nodes[row, KEY])
        before = table[slot]
        latest = nodes[row, TIME]
        if before < 0:
            new += 1
        else:
            latest = max(latest, nodes[before - base, LATEST])
        nodes[row, LATEST] = latest
        nodes[row, BEFORE] = before
        _add_jump(nodes, base, row, before)
        table[slot] = base + row
    return new, limit


@kernel
def _add_jump(nodes, base, row, before):  # type: ignore[no-untyped-def]
    """Give a node its jump: to where two jumps of the same length from the one before it lead, or
    to the one before it."""
    jump, length, next_length, least = before, np.int64(1), np.int64(0), nodes[row, TIME]
    if before >= 0:
        at = before - base
        next_length = nodes[at, LENGTH]
        middle = nodes[at, JUMP] - base
        # Its length is known here too: half of the time the node in the middle isn't looked at.
        if middle >= 0 and next_length == nodes[at, NEXT_LENGTH]:
            jump = nodes[middle, JUMP]
            length += 2 * next_length
            next_length = nodes[middle, NEXT_LENGTH]
            least = min(least, nodes[at, LEAST], nodes[middle, LEAST])
    nodes[row, JUMP] = jump
    nodes[row, LENGTH] = length
    nodes[row, NEXT_LENGTH] = next_length
    nodes[row, LEAST] = least


@kernel
def move_chains(table, other, nodes, base, alive):  # type: ignore[no-untyped-def]
    """Put the chains that have a row from `alive` on into another table, which is empty."""
    mask = len(other) - 1
    for slot in range(len(table)):
        row = table[slot]
        if row >= alive:
            free = _first_slot(mask, nodes[row - base, KEY])
            while other[free] >= 0:
                free = (free + 1) & mask
            other[free] = row


@kernel
def first_alive(nodes, first, limit, bound):  # type: ignore[no-untyped-def]
    """The first row from `first` on whose time is not below the bound."""
    while first < limit and nodes[first, TIME] < bound:
        first += 1
    return first


@kernel
def _look_ahead(table, nodes, base, alive, keys, first, end, heads, ahead):  # type: ignore[no-untyped-def]
    """Find the chains of some keys, and touch the first nodes of each.

    A chain's nodes lie anywhere, and the next one is known when the last has come from memory.  So
    many chains are followed side by side, a node of each in turn: the CPU waits for all of them
    at once.  Afterwards they are in its cache.  A probe with 5 matches in a window of 1M rows took
    114 ns, not 340; of 10M rows 142, not 550.
    """
    mask = len(table) - 1
    for i in range(end - first):
        heads[i] = table[_first_slot(mask, keys[first + i])]
    for i in range(end - first):
        row, key = heads[i], keys[first + i]
        if row >= 0 and (row < base or nodes[row - base, KEY] != key):
            heads[i] = table[slot_of(table, nodes, base, key)]
        ahead[i] = heads[i]
    left = end - first
    for _ in range(LOOK_AHEAD):
        kept = 0
        for i in range(left):
            if ahead[i] >= alive:
                ahead[kept] = nodes[ahead[i] - base, BEFORE]
                kept += 1
        left = kept


@kernel(outputs=2)
def chain(  # type: ignore[no-untyped-def]
    table, nodes, base, oldest, tuple_keys, lows, highs, tuple_, limit, place, out_tuples, out_rows
):
    """Candidates along a chain, newest first, as long as one can be late enough."""
    room, filled, alive = len(out_rows), 0, base + oldest
    heads, ahead = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    first = end = tuple_
    while tuple_ < limit:
        if tuple_ == end:
            first, end = tuple_, min(tuple_ + GROUP, limit)
            _look_ahead(table, nodes, base, alive, tuple_keys, first, end, heads, ahead)
        low, high = lows[tuple_], highs[tuple_]
        row = heads[tuple_ - first] if place < 0 else place
        while row >= alive and nodes[row - base, LATEST] >= low:
            at = row - base
            time = nodes[at, TIME]
            if time > high and nodes[at, LEAST] > high:
                row = nodes[at, JUMP]
                continue
            if low <= time and time <= high:
                if filled == room:
                    return filled, tuple_, row
                out_tuples[filled] = tuple_
                out_rows[filled] = at
                filled += 1
            row = nodes[at, BEFORE]
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel(outputs=2)
def chain_places(  # type: ignore[no-untyped-def]
    table, nodes, base, tuple_keys, begins, ends, tuple_, limit, place, out_tuples, out_rows
):
    """Candidates along a chain, between two places."""
    room, filled = len(out_rows), 0
    while tuple_ < limit:
        begin, end = begins[tuple_], ends[tuple_]
        if place < 0:
            place = table[slot_of(table, nodes, base, tuple_keys[tuple_])] - base
        while place >= begin:
            jump = nodes[place, JUMP] - base
            if place >= end and jump >= end:
                place = jump
                continue
            if place < end:
                if filled == room:
                    return filled, tuple_, place
                out_tuples[filled] = tuple_
                out_rows[filled] = place
                filled += 1
            place = nodes[place, BEFORE] - base
        place = -1
        tuple_ += 1
    return filled, tuple_, -1


@kernel(outputs=2)
def places(lows, times, others, is_inclusive, begins, ends):  # type: ignore[no-untyped-def]
    """For each time, ascending, the rows of another stream, by time, that came before it: from its
    low up to the time, which is included or not."""
    begin = end = 0
    rows = len(others)
    for x in range(len(times)):
        low, time = lows[x], times[x]
        while begin < rows and others[begin] < low:
            begin += 1
        if is_inclusive:
            while end < rows and others[end] <= time:
                end += 1
        else:
            while end < rows and others[end] < time:
                end += 1
        begins[x] = begin
        ends[x] = max(end, begin)
