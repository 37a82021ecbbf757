"""Compiled code of the window join, on plain arrays.

expand      rows of one more stream for each tuple found so far, by six ways of access
interval    when a row of one more stream may come, and whether two rows' times agree
"""
