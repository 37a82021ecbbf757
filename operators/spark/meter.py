"""How many bytes Spark has shuffled, from its own metrics.

    with Meter(spark) as meter:
        joined.write.parquet(path)
    meter.shuffle_bytes

Jobs of the block carry a tag; when it ends, Spark's monitoring interface is asked for their stages.
That is a public interface of a running application, and needs its UI (``spark.ui.enabled``).
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from matwin.storage.errors import InputError

PATIENCE = 20.0
"""Seconds until Spark's own bookkeeping must have caught up with its finished jobs."""


class Meter:
    """Counts what the jobs of a block have shuffled."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._address = _address(session)
        self._tag = f"matwin-{uuid.uuid4().hex}"
        self.shuffle_bytes: int | None = None
        """Bytes written for shuffles, compressed, as they go over the network; None: not known."""
        self.shuffle_rows: int | None = None
        self.jobs = 0

    def __enter__(self) -> Meter:
        self._session.addTag(self._tag)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.removeTag(self._tag)
        with suppress(OSError):  # no answer: what was measured is not known, and nothing else fails
            self._count()

    def _count(self) -> None:
        jobs = self._finished_jobs()
        if jobs is None:
            return
        wanted = sorted({stage for job in jobs for stage in job["stageIds"]})
        stages = [s for stage in wanted for s in self._asked(f"stages/{stage}?details=false")]
        self.jobs = len(jobs)
        self.shuffle_bytes = sum(stage["shuffleWriteBytes"] for stage in stages)
        self.shuffle_rows = sum(stage["shuffleWriteRecords"] for stage in stages)

    def _finished_jobs(self) -> list[dict[str, Any]] | None:
        """The jobs with the tag once none of them runs any more; None if that takes too long."""
        until = time.monotonic() + PATIENCE
        seen = -1
        while True:
            jobs = [job for job in self._asked("jobs") if self._has_tag(job)]
            is_quiet = all(job["status"] != "RUNNING" for job in jobs)
            if jobs and is_quiet and len(jobs) == seen:
                return jobs
            if time.monotonic() > until:
                return None
            seen = len(jobs) if is_quiet else -1
            time.sleep(0.15)

    def _has_tag(self, job: dict[str, Any]) -> bool:
        """Spark puts the names of session and thread before a tag."""
        return any(tag.endswith(self._tag) for tag in job.get("jobTags", ()))

    def _asked(self, what: str) -> list[dict[str, Any]]:
        with urlopen(f"{self._address}/{what}", timeout=PATIENCE) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


def _address(session: SparkSession) -> str:
    remedy = "run with spark.ui.enabled=true, or read the numbers in Spark's history server"
    try:
        context = session.sparkContext
        page, application = context.uiWebUrl, context.applicationId
    except (PySparkException, AttributeError) as e:
        raise InputError(
            f"Meter: this session (Spark Connect) does not say where its UI is; {remedy}"
        ) from e
    if page is None:
        raise InputError(f"Meter: the session's UI is switched off; {remedy}")
    return f"{page}/api/v1/applications/{quote(application)}"
