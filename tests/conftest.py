"""Settings for all tests: Hypothesis without a clock, more examples when asked for."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler.loadscope import LoadScopeScheduling

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Tests that share something large, a Spark cluster or a browser, run in one process.  xdist's own
# groups do nothing with this pytest, which no longer takes the names that xdist gives to tests.
GROUPS = {
    "tests/spark/": "spark", "tests/tools/test_join_spark.py": "spark",
    "tests/tools/test_bench_spark.py": "spark", "tests/tools/test_bench_scale.py": "spark",
    "tests/tools/test_trace_html.py": "browser",
}  # fmt: skip


class Grouped(LoadScopeScheduling):
    """Tests one by one, but for those of a group."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How `-n` divides the tests."""
    return Grouped(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flag of the golden scripts."""
    parser.addoption("--rewrite", action="store_true", help="rewrite golden scripts")
