"""W-joins: N streams in one operator, with a window of its own for each pair."""
