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
    word = name.replace("-", "_")
    declared = "suite" if word in ("epsilon", "bestmatch") else word
    examples = examples or (f"matwin bench {name} --quick",)
    return Command(
        f"matwin.tools.bench.{word}", text, (*examples, f"{examples[0]} -q --json"),
        ("matwin.tools.bench.arguments", f"configure_{declared}"),
    )  # fmt: skip


def _trace(name: str, text: str, *examples: str) -> Command:
    declared = ("matwin.tools.trace.arguments", f"configure_{name}")
    return Command(f"matwin.tools.trace.{name}", text, examples, declared)


def _state(name: str, text: str, *examples: str) -> Command:
    arguments = ("matwin.tools.state.arguments", f"configure_{name}")
    return Command(f"matwin.tools.state.{name}", text, examples, arguments)


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
    ("query",): Command(
        "matwin.tools.query.command",
        "run a continuous query from a job file, epoch by epoch",
        (
            "matwin query job.toml --once",
            "matwin query job.toml --once --state state --sink results",
            "matwin query job.toml --once --status :0 --format jsonl",
            "matwin query job.toml --once --trace epochs.trace --json",
        ),
        ("matwin.tools.query.arguments", "configure"),
    ),
    ("state", "show"): _state(
        "show",
        "tell what a query has committed to its state folder",
        "matwin state show state",
        "matwin state show state --json",
    ),
    ("state", "verify"): _state(
        "verify", "read all of a state folder and check it", "matwin state verify state"
    ),
    ("state", "export"): _state(
        "export",
        "write the chunks that a state folder keeps to files",
        "matwin state export state --stream a -o chunks.parquet",
        "matwin state export state -o chunks --format csv",
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
        ("matwin demo", "matwin demo --rows 20000", "matwin demo -o demo.html --json"),
        (ARGUMENTS, "configure_demo"),
    ),
    ("warm",): Command(
        "matwin.tools.warm",
        "compile all kernels now, so that no join has to",
        ("matwin warm", "matwin warm --json"),
        (ARGUMENTS, "configure_warm"),
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
        "show one page: its bytes and what they mean",
        "matwin trace dump walk.trace --window left --page 0",
    ),
    ("trace", "matrix"): _trace(
        "matrix", "draw the pair matrix of a walk", "matwin trace matrix walk.trace"
    ),
    ("trace", "replay"): _trace(
        "replay",
        "estimate what other budgets, modes and replacements would cost",
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
    ("bench", "epsilon"): _bench("epsilon", "compare the ε-join with DuckDB, scipy and Polars"),
    ("bench", "asof"): _bench("asof", "compare the as-of join with Polars and DuckDB"),
    ("bench", "start"): _bench("start", "measure a process's first join, cold and warm"),
    ("bench", "sql"): _bench("sql", "compare queries with the joins called directly"),
    ("bench", "bestmatch"): _bench(
        "bestmatch", "compare the bestmatch join with DuckDB and nested loops"
    ),
    ("bench", "memory"): _bench("memory", "measure joins with a tenth of the data as memory"),
    ("bench", "ways"): _bench("ways", "measure every way of a join, and which one is taken"),
    ("bench", "large"): _bench("large", "measure a join of large Parquet files in little memory"),
    ("bench", "epochs"): _bench("epochs", "measure continuous queries as their windows grow"),
    ("bench", "paper-bestmatch"): _bench(
        "paper-bestmatch", "repeat the experiments of the bestmatch paper"
    ),
    ("bench", "window"): _bench("window", "compare the window join with DuckDB and Polars"),
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
        "spark", "compare joins on Spark with Spark SQL", "matwin bench spark --rows 100000"
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
    ("state",): "look into the state of a continuous query",
    ("trace",): "look into a page trace",
}
