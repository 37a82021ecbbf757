"""A window on disk, in three forms that hold the same rows.

| form     | what a step writes                          | what it is good for                   |
|----------|---------------------------------------------|---------------------------------------|
| standard | the whole live window, merged into one run  | few steps, any arrival order          |
| grid     | one page for each cell that got rows        | few cells with many rows, any order   |
| slab     | the new rows, once                          | streams sorted or nearly so           |
"""

from __future__ import annotations

from .choose import Choice, choose
from .grid import GridWindow
from .slab import SlabWindow
from .standard import StandardWindow
from .window import Window, WindowState

FORMS: dict[str, type[Window]] = {
    "standard": StandardWindow,
    "grid": GridWindow,
    "slab": SlabWindow,
}

__all__ = [
    "FORMS",
    "Choice",
    "GridWindow",
    "SlabWindow",
    "StandardWindow",
    "Window",
    "WindowState",
    "choose",
]
