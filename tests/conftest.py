"""Settings for all tests: Hypothesis without a clock, more examples when asked for."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flag of the golden scripts."""
    parser.addoption("--rewrite", action="store_true", help="rewrite golden scripts")
