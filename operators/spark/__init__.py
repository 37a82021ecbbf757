"""MatWin's joins on Spark: DataFrames in, a lazy DataFrame out."""

from .two_sided import bestmatch_join, epsilon_join
from .windows import window_join

__all__ = ["bestmatch_join", "epsilon_join", "window_join"]
