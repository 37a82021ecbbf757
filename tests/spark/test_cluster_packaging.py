"""How the package gets to executors, each way as in docs/SPARK.md, each an application of its own.

    Python of the executors          the package comes                  compiled kernels are kept
    ───────────────────────          ─────────────────                  ─────────────────────────
    has the libraries only           as a zip, --py-files               beside the unpacked zip
    came along as an archive         in the archive, spark.archives     in the archive, warm
    has the libraries only           not at all                         a clear error on the driver

The libraries are those of the environment that runs the tests, found by a path file.  Path files
in *their* folder are not read then, so the package itself is invisible.  Executors have no home
folder, as in many containers, and workers are not used again: every task is a new process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sparks import JAVA, needs_campaign, needs_spark

import matwin

pytestmark = [needs_spark, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
ROWS, WINDOW = 4000, 3
MASTER = "local-cluster[1,2,1024]"  # one executor, two workers at a time
CONF = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.log.level": "ERROR",
    "spark.python.worker.reuse": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
APPLICATION = f"""
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import matwin.spark

def join():
    sides = {{name: spark.range({ROWS}).selectExpr("id AS t", "id * 7 AS v") for name in "ab"}}
    joined = matwin.spark.window_join(sides, time="t", windows={WINDOW}, strips=2)
    return sorted(zip(*joined.toArrow().to_pydict().values()))

def compiled():
    files = Path(os.environ["SPARK_HOME"], "work").rglob("*.kernel")
    return {{str(file): file.stat().st_mtime_ns for file in files}}

spark = SparkSession.builder.getOrCreate()
told = {{"package": matwin.__file__}}
try:
    told["rows"] = join()
    told["compiled"] = compiled()
    told["again"] = join() == told["rows"]
    told["compiled again"] = compiled()
except matwin.InputError as e:
    told["error"] = str(e)
spark.stop()
Path(sys.argv[1]).write_text(json.dumps(told))
"""


WARM = f"""
import matwin, pyarrow
sides = {{name: pyarrow.table({{"t": range(10), "v": range(10)}}) for name in "ab"}}
matwin.window_join(sides, time="t", windows={WINDOW}).read_all()
"""


def table() -> pa.Table:
    return pa.table({"t": range(ROWS), "v": range(0, 7 * ROWS, 7)})


def expected() -> list[list[int]]:
    """The rows that the embedded join gives."""
    sides = {name: table() for name in "ab"}
    found = matwin.window_join(sides, time="t", windows=WINDOW).read_all()
    return sorted(map(list, zip(*found.to_pydict().values(), strict=True)))


# ── packages and environments ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: other builds may run in the tree."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "dist"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("matwin", "storage", "scheduler", "operators", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (made,) = out.glob("*.whl")
    return made


def environment(folder: Path) -> Path:
    """A virtual environment with our libraries and without our package."""
    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return site


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that lacks the package."""
    folder = tmp_path_factory.mktemp("bare") / "environment"
    environment(folder)
    python = folder / "bin" / "python"
    assert subprocess.run([python, "-Ic", "import numba, pyspark"], check=False).returncode == 0
    tried = subprocess.run([python, "-Ic", "import matwin"], capture_output=True, check=False)
    assert b"No module named 'matwin'" in tried.stderr
    return python


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Links to Spark's folder, where executors write into a folder `work` of our own."""
    import pyspark

    made = tmp_path / "spark"
    made.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (made / entry.name).symlink_to(entry)
    return made


def run(home: Path, command: list[Any], **variables: Any) -> dict[str, Any]:
    """What an application tells; its processes have no home and know nothing of this one."""
    script, answer = home.parent / "application.py", home.parent / "answer.json"
    script.write_text(APPLICATION)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHON", "NUMBA_", "XDG_"))
    }
    settings = {"SPARK_HOME": home, "HOME": home.parent / "nowhere", **variables}
    ran = subprocess.run(
        [*map(str, command), str(script), str(answer)],
        env={**kept, **{name: str(value) for name, value in settings.items()}},
        cwd=home.parent, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]
    assert not (home.parent / "nowhere").exists()
    told: dict[str, Any] = json.loads(answer.read_text())
    return told


def submit(home: Path, **more: str) -> list[Any]:
    """The words of spark-submit."""
    settings = {**CONF, "spark.local.dir": str(home.parent / "local"), **more}
    words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    return [Path(sys.executable).parent / "spark-submit", "--master", MASTER, *words]


# ── the tests ────────────────────────────────────────────────────────────────────────────────────


def test_the_wheel_as_a_py_file(home: Path, wheel: Path, bare: Path) -> None:
    """Driver and executors lack the package; Spark takes the wheel once it is called a zip."""
    package = shutil.copy(wheel, home.parent / "matwin.zip")
    command = [*submit(home, **{"spark.pyspark.python": str(bare)}), "--py-files", package]
    told = run(home, command)
    assert "matwin.zip" in told["package"]
    assert told["rows"] == expected()
    assert told["again"]
    # Compiled once, beside the sources, and used by all processes that came later.
    kernels = [Path(file) for file in told["compiled"] if file.endswith(".kernel")]
    assert kernels
    assert {"matwin.zip.unpacked"} == {
        part for file in kernels for part in file.parts if part.startswith("matwin.zip")
    }
    assert told["compiled again"] == told["compiled"]


@needs_campaign
def test_a_packed_environment(home: Path, wheel: Path, tmp_path: Path) -> None:
    """The kernels that were compiled before packing come along."""
    site = environment(tmp_path / "environment")
    with zipfile.ZipFile(wheel) as modules:
        modules.extractall(site)
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([python, "-Ic", WARM], check=True)
    before = {
        str(file.relative_to(site)): file.stat().st_mtime_ns // 10**9
        for file in site.rglob("*.kernel")
    }
    assert before
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(tmp_path / "environment", ".")
    packed = f"{tmp_path / 'environment.tar.gz'}#environment"
    told = run(
        home,
        submit(home, **{"spark.archives": packed}),
        PYSPARK_PYTHON="./environment/bin/python", PYSPARK_DRIVER_PYTHON=python,
    )  # fmt: skip
    assert told["rows"] == expected()
    assert told["again"]
    unpacked = {
        file.partition("site-packages/")[2]: time // 10**9
        for file, time in told["compiled"].items()
    }
    assert unpacked == before
    assert told["compiled again"] == told["compiled"]


def test_executors_without_the_package(home: Path, bare: Path) -> None:
    told = run(home, submit(home), PYSPARK_PYTHON=bare, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert told["error"].startswith(
        f"matwin.spark.window_join: this executor's Python ({bare}) can't import matwin"
    )
    assert told["error"].endswith(
        "install it there, or send it along with spark.archives or --py-files (docs/SPARK.md)"
    )
