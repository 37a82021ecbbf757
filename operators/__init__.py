"""Joins and queries built from streams, schedules and pages.

    epsilon     ε-joins
    wjoin       N-way window joins
    semijoin    the semijoin paper's two nodes
    spark       all joins on DataFrames; installed as `matwin.spark`

An operator holds a constant specification and separate state, and gives back batches. The layer
stands on `matwin.storage`, `matwin.scheduler` and the core of `matwin`.
"""
