"""Joins and queries built from streams, schedules and pages.

An operator holds a constant specification and separate state, and gives back batches. The layer
stands on `matwin.storage`, `matwin.scheduler` and the core of `matwin`.

Empty until the first operator lands.
"""
