"""Which pages meet, and in what order they are read.

The scheduler knows page numbers, fences, reach and budgets. It plans page reads as plain values and
never looks at a column value. It stands on `matwin.storage` and on nothing above it.

Empty until the planner lands.
"""
