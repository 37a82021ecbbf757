"""A Spark session for a command: started quietly, ended with it, its failures told in one line.

    master, conf ──▶ started(...) ──▶ SparkSession ──▶ stopped, unless it ran before

A session that runs already is used and left running.  Values that are given win over ours, which
are few: instants are shown in UTC and text without an offset is no instant, as with the embedded
joins, so that the same words give the same rows on every machine.

Java talks on standard error before it can be told not to.  On a terminal it keeps it, for Spark's
own progress line; elsewhere what it says goes to a file that nobody reads unless Spark can't start.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from matwin.storage.errors import InputError, MatwinError
from matwin.storage.scratch import scratch_folder

from .errors import LACKING

LOCAL = re.compile(r"local(-cluster)?\b")
LOG_LEVEL = "spark.log.level"
OURS = {
    LOG_LEVEL: "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_TASK = re.compile(r"TaskError: (.*)")


@contextmanager
def started(
    master: str, conf: Mapping[str, str], *, shows_progress: bool = False
) -> Iterator[SparkSession]:
    """A session for one command."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    _prepare(master)
    builder = SparkSession.builder.appName("matwin")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    progress = {"spark.ui.showConsoleProgress": str(shows_progress).lower()}
    for name, value in {**OURS, **progress, **conf}.items():
        builder = builder.config(name, value)
    with _silenced(is_wanted=not shows_progress and LOG_LEVEL not in conf) as said:
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as e:
            raise InputError(
                f"Spark does not start with --master {master}: {said() or line_of(e)}; check "
                "--master and --conf"
            ) from e
    try:
        yield session
    finally:
        session.stop()


def conf_of(texts: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as Spark's configuration.

    >>> conf_of(["spark.sql.shuffle.partitions=8"])
    {'spark.sql.shuffle.partitions': '8'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip():
            raise InputError(
                f"--conf {text!r}: write KEY=VALUE, such as --conf spark.executor.memory=4g"
            )
        found[name.strip()] = value
    return found


def _prepare(master: str) -> None:
    """What Spark looks for in the environment, where nobody has said it."""
    if master.startswith("sc://"):
        return
    home = Path(pyspark.__file__).parent
    if "SPARK_HOME" not in os.environ and (home / "bin" / "spark-submit").exists():
        os.environ["SPARK_HOME"] = _linked(home) if "cluster" in master else str(home)
    if LOCAL.match(master):
        # Executors on other machines have a Python of their own at a place of their own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _check_java()


def _linked(home: Path) -> str:
    """A folder of links to Spark's own: workers of a local cluster write their logs into it."""
    stack = ExitStack()
    folder = stack.enter_context(scratch_folder(prefix="matwin-spark-"))
    atexit.register(_close, stack, os.getpid())
    for entry in home.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return str(folder)


def _close(stack: ExitStack, process: int) -> None:
    """Give up what a process has, in that process: a forked child ends as well."""
    if process == os.getpid():
        stack.close()


def _check_java() -> None:
    java = os.environ.get("JAVA_HOME")
    if not (Path(java, "bin", "java").exists() if java else shutil.which("java")):
        where = f"JAVA_HOME={java} has none" if java else "there is none in PATH"
        raise InputError(
            f"Spark needs Java 17 or later, and {where}; install a JDK and set JAVA_HOME, or leave "
            "out --engine spark"
        )


@contextmanager
def _silenced(*, is_wanted: bool) -> Iterator[Callable[[], str]]:
    """Give what is started meanwhile a file for its standard error; what it has said at last."""
    if not is_wanted:
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:

        def last_line() -> str:
            file.seek(0)
            lines = file.read().decode("utf-8", "replace").split("\n")
            told = [line.strip() for line in lines if "Exception" in line or "Error" in line]
            return told[0] if told else ""

        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield last_line
        finally:
            os.dup2(kept, 2)
            os.close(kept)


# ── failures ─────────────────────────────────────────────────────────────────────────────────


class SparkFailure(MatwinError):
    """A job has failed; the message says in a line where and why."""


@contextmanager
def failures_told() -> Iterator[None]:
    """Turn what Spark throws into an error of ours, in one line."""
    try:
        with _unlogged():
            yield
    except MatwinError:
        raise
    except (PySparkException, Py4JJavaError) as e:
        text = _whole(e)
        task, lacking = _TASK.search(text), LACKING.search(text)
        if task is not None:
            raise SparkFailure(task[1].strip()) from e
        if lacking is not None:
            raise InputError(" ".join(lacking[0].split())) from e
        raise _kind(e)(f"Spark: {line_of(e)}") from e


@contextmanager
def _unlogged() -> Iterator[None]:
    """PySpark writes an exception into a log of its own before it raises it; not meanwhile."""
    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def _kind(error: Exception) -> type[MatwinError]:
    """Whether a person can mend it by other words; what fails in a job may be anything."""
    return SparkFailure if isinstance(error, Py4JJavaError) else InputError


def line_of(error: BaseException) -> str:
    """What is wrong, without plans and stack traces."""
    lines = [line.strip() for line in _whole(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "== "))]
    text = said[0] if said else type(error).__name__
    return text.removesuffix(";").removesuffix(":")


def _whole(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception)
    return str(error)
