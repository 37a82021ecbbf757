"""Compiled code on plain arrays and numbers: no object, no column, no file gets in here.

strips      which stretches of sorted base rows a probe row's cells can reach
judge       every probe row with its eligible base rows: all of them, the best, or whether any
skyline     which of some pairs no other dominates
"""
