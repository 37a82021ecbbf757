"""The table of all commands: their words, the module that does the work, and examples.

The order is that of the help: what most people want comes first.  The examples are run by a test,
on small files of these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Words: TypeAlias = tuple[str, ...]

ARGUMENTS = "matwin.tools.arguments"


@dataclass(frozen=True, slots=True)
class Command:
    """A module with `run(args) -> int`, its line in the help, and examples.

    `arguments` is the module and function that declare the arguments; None is the module's own
    `configure`.  It is given where the module loads libraries that help can do without.
    """

    module: str
    help: str
    examples: tuple[str, ...] = ()
    arguments: tuple[str, str] | None = None


def _bench(name: str, text: str, *examples: str) -> Command:
    module = f"matwin.tools.bench.{name.replace('-', '_')}"
    return Command(module, text, examples or (f"matwin bench {name} --quick",))


def _trace(name: str, text: str, *examples: str) -> Command:
    return Command(f"matwin.tools.trace.{name}", text, examples)


COMMANDS: dict[Words, Command] = {
    ("join",): Command(
        "matwin.tools.join",
        "join two files by nearness",
        (
            "matwin join temperature.parquet humidity.parquet --on t=10min --by room",
            "matwin join temperature.parquet humidity.parquet --on t=-10min..0s --on x=100 "
            "-o near.parquet",
            "matwin join temperature.parquet humidity.parquet --on t=1h --pairs all --format csv",
            "matwin join temperature.parquet humidity.parquet --on t=10min --memory 64MiB "
            "--trace walk.trace -o traced.parquet --json",
        ),
        (ARGUMENTS, "configure_join"),
    ),
    ("asof",): Command(
        "matwin.tools.asof",
        "join each left row with the nearest right row before it, after it, or either",
        (
            "matwin asof trades.parquet quotes.parquet --on t --by stock",
            "matwin asof trades.parquet quotes.parquet --on t --by stock --tolerance 5min "
            "-o priced.parquet",
            "matwin asof trades.parquet quotes.parquet --on t --direction nearest --how inner -q",
        ),
        (ARGUMENTS, "configure_asof"),
    ),
    ("window-join",): Command(
        "matwin.tools.window_join",
        "join several streams inside sliding windows",
        (
            "matwin window-join a=trades.parquet b=quotes.parquet --time t --window 5min "
            "--by stock",
            "matwin window-join a=trades.parquet b=quotes.parquet --time t --then a,b=1min "
            "-o after.parquet",
        ),
        (ARGUMENTS, "configure_window_join"),
    ),
    ("sql",): Command(
        "matwin.tools.sql.command",
        "run a query with the papers' joins in it, or type queries at a prompt",
        (
            'matwin sql -c "select max(celsius) from warm" warm=temperature.parquet',
            'matwin sql -c "from a asof join b on a.t >= b.t" a=trades.parquet '
            "b=quotes.parquet -o bids.parquet",
        ),
        (ARGUMENTS, "configure_sql"),
    ),
    ("verify",): Command(
        "matwin.tools.verify",
        "ask DuckDB the same and compare",
        (
            "matwin verify temperature.parquet humidity.parquet --on t=10min --by room",
            "matwin verify temperature.parquet humidity.parquet --on t=-10min..0s --on x=100 "
            "--result near.parquet --json",
        ),
        (ARGUMENTS, "configure_verify"),
    ),
    ("demo",): Command(
        "matwin.tools.demo",
        "show MatWin at work on a small example",
        ("matwin demo", "matwin demo --rows 20000"),
    ),
    ("warm",): Command(
        "matwin.tools.warm",
        "compile all kernels now, so that no join has to",
        ("matwin warm", "matwin warm --json"),
    ),
    ("trace", "summary"): _trace(
        "summary",
        "count what a trace holds",
        "matwin trace summary walk.trace",
        "matwin trace summary walk.trace --json",
    ),
    ("trace", "pages"): _trace(
        "pages", "show the life of each page", "matwin trace pages walk.trace"
    ),
    ("trace", "dump"): _trace(
        "dump",
        "show one page, bytes beside meaning",
        "matwin trace dump walk.trace --window left --page 0",
    ),
    ("trace", "matrix"): _trace(
        "matrix", "draw the pair matrix of a walk", "matwin trace matrix walk.trace"
    ),
    ("trace", "replay"): _trace(
        "replay",
        "reckon what other budgets, modes and replacements would cost",
        "matwin trace replay walk.trace --frames 4,8,16",
    ),
    ("trace", "diff"): _trace(
        "diff", "compare two traces", "matwin trace diff walk.trace other.trace"
    ),
    ("trace", "html"): _trace(
        "html",
        "write a trace as a page for a browser",
        "matwin trace html walk.trace -o walk.html",
    ),
    ("trace", "perfetto"): _trace(
        "perfetto",
        "write a trace for the time line of Perfetto",
        "matwin trace perfetto walk.trace -o walk.perfetto.json",
    ),
    ("bench", "storage"): _bench(
        "storage", "measure the storage engine", "matwin bench storage --rows 1000 --size 1MiB"
    ),
    ("bench", "schedule"): _bench(
        "schedule", "compare the page reads of every mode with the bound"
    ),
    ("bench", "epsilon"): _bench("epsilon", "measure the ε-join beside DuckDB, scipy and Polars"),
    ("bench", "asof"): _bench("asof", "measure the as-of join beside Polars and DuckDB"),
    ("bench", "sql"): _bench("sql", "measure queries beside the joins called directly"),
    ("bench", "bestmatch"): _bench(
        "bestmatch", "measure the bestmatch join beside DuckDB and nested loops"
    ),
    ("bench", "memory"): _bench("memory", "measure joins with a tenth of the data as memory"),
    ("bench", "ways"): _bench("ways", "measure every way of a join, and which one is taken"),
    ("bench", "large"): _bench("large", "measure a join of large Parquet files in little memory"),
    ("bench", "paper-bestmatch"): _bench(
        "paper-bestmatch", "repeat the experiments of the bestmatch paper"
    ),
    ("bench", "window"): _bench("window", "measure the window join beside DuckDB and Polars"),
    ("bench", "paper-window"): _bench(
        "paper-window", "repeat the experiments of the window-join papers"
    ),
    ("bench", "paper-semijoin"): _bench(
        "paper-semijoin", "repeat the experiments of the semijoin paper"
    ),
    ("bench", "scale"): _bench(
        "scale",
        "compare Spark's copies and times with the cost model",
        "matwin bench scale --rows 100000",
    ),
    ("bench", "spark"): _bench(
        "spark", "measure joins on Spark beside Spark SQL", "matwin bench spark --rows 100000"
    ),
    ("completion",): Command(
        "matwin.tools.completion",
        "print what makes a shell complete commands and options",
        (
            "matwin completion bash > ~/.local/share/bash-completion/completions/matwin",
            'eval "$(matwin completion zsh)"',
            "matwin completion fish > ~/.config/fish/completions/matwin.fish",
        ),
    ),
}

# words that only lead to other words
GROUPS: dict[Words, str] = {
    ("bench",): "run a benchmark",
    ("trace",): "look into a page trace",
}
