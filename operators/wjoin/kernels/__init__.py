"""Compiled code of the window join, on plain arrays.

expand      rows of one more stream for each tuple found so far, by five ways of access
interval    when a row of one more stream may come, and whether two rows' times agree
"""

from matwin.storage.compiled import drop_stale

from .interval import narrow

drop_stale(narrow)  # before anything here runs
