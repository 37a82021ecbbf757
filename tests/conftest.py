"""Settings for all tests: Hypothesis without a clock, more examples when asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proofs
import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler.loadscope import LoadScopeScheduling

from matwin.storage import kernel

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile(
    "campaign", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=5000
)
settings.register_profile(  # a first failure, unshrunk
    "quick",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100,
    phases=[Phase.generate],
)
# A gate judges the change before it: the same code gets the same verdict.  Whoever develops, and
# the campaign, see new cases in every run; what they find becomes a test of its own.
settings.register_profile("gate", settings.get_profile("default"), derandomize=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "gate" if os.environ.get("CI") else "default")
)

# What a user gets beyond a few rows; tests/model/test_plain_kernels.py runs the rest.
kernel.PLAIN_SECONDS = 0.0

# Whatever runs in the background may have been told to ignore signals, and so would our children.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


# Tests that share something large, a Spark cluster or a browser, run in one process.  xdist's own
# groups do nothing with this pytest, which no longer takes the names that xdist gives to tests.
GROUPS = {
    "tests/spark/": "spark", "tests/tools/test_join_spark.py": "spark",
    "tests/tools/test_bench_spark.py": "spark", "tests/tools/test_bench_scale.py": "spark",
    "tests/tools/test_trace_html.py": "browser",
    # Their fixtures take longer than their tests, and every process would make its own.
    "tests/disk/test_epoch_memory.py": "epoch memory", "tests/disk/test_schedules.py": "schedules",
}  # fmt: skip


class Grouped(LoadScopeScheduling):
    """Tests one by one, but for those of a group."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How `-n` divides the tests."""
    return Grouped(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of the golden scripts and of the proofs."""
    parser.addoption("--rewrite", action="store_true", help="rewrite golden scripts")
    parser.addoption("--proof", metavar="FILE", help="write the table of the proofs to this file")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """The cases of a proof go with its report, also from xdist's processes."""
    report = yield
    cases = proofs.taken()
    for mark in item.iter_markers("proof"):
        report.user_properties.append(("proof", (mark.args[0], max(cases, 1))))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was proved, as a table."""
    reports = [r for outcome in ("passed", "failed", "error", "skipped")
               for r in terminalreporter.getreports(outcome)]  # fmt: skip
    rows = proofs.table(r for r in reports if hasattr(r, "user_properties"))
    if not rows:
        return
    terminalreporter.section("proofs")
    for line in proofs.as_text(rows):
        terminalreporter.line(line)
    file = config.getoption("--proof")
    if file:
        Path(file).write_text(proofs.as_markdown(rows), encoding="utf-8")
