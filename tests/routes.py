"""Which parts rows belong to by a layout, in NumPy: the referee of what Spark computes.

The number of a row's strip comes from the layout; what follows from it is written here once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from matwin.spark.layout import Group, Layout, Reach


def parts_of_rows(layout: Layout, values: Any, hashes: Any, salts: Any, reach: Reach) -> Any:
    """The first and the last part of each row."""
    if layout.shared is not None:
        return _of_group(layout.shared, values, salts, reach)
    first = np.mod(hashes, layout.cold)
    last = first.copy()
    for key, group in layout.hot:
        mine = hashes == key
        first[mine], last[mine] = _of_group(group, values[mine], salts[mine], reach)
    return first, last


def _of_group(group: Group, values: Any, salts: Any, reach: Reach) -> Any:
    begin, end = group.strips(values, reach)
    starts, many = np.array(group.starts), np.array(group.salts)
    if reach.is_anchor:
        part = starts[begin] + np.mod(salts, many[begin])
        return part, part
    return starts[begin], starts[end + 1] - 1
