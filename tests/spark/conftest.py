"""The cluster as a fixture."""

from __future__ import annotations

from typing import Any

import pytest
from sparks import cluster


@pytest.fixture(scope="session")
def spark() -> Any:
    """The session that all tests of this process share."""
    return cluster()
