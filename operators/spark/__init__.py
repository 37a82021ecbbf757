"""MatWin's joins on Spark: DataFrames in, a DataFrame out.

    frames ──▶ look at the data ──▶ strips ──▶ one shuffle ──▶ embedded operators in the executors

The joins take the arguments of the embedded ones (`matwin.asof_join`, `matwin.bestmatch_join`,
`matwin.epsilon_join`, `matwin.window_join`).  `explain` says how the work would be divided, `Meter`
how much was shuffled.
Only the DataFrame API is used, so all of it also runs over Spark Connect, but for the meter.
"""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "matwin.spark needs pyspark, which is not installed here; run: pip install 'matwin[spark]'",
        name="pyspark",
    )

from .asof import asof_join
from .explain import explain
from .meter import Meter
from .two_sided import bestmatch_join, epsilon_join
from .windows import window_join


def __getattr__(name: str) -> object:
    # SQL is a tool, above the joins; the front door knows where it is.
    if name == "sql":
        import matwin

        return matwin.spark_sql
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Meter", "asof_join", "bestmatch_join", "epsilon_join", "explain", "window_join"]
