"""The package as it is declared and as it is installed: mapping, lazy names, the command."""

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import tomllib
import types
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import matwin
from matwin.storage.errors import InputError
from matwin.tools import cli

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "setuptools"
]
HEAVY = {"duckdb", "llvmlite", "lmdb", "numba", "numpy", "pandas", "pyarrow", "pyspark"}


def modules_loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after it has run the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in json.loads(result.stderr)}


# --- what pyproject.toml says ---------------------------------------------------------------------


def test_every_package_folder_is_listed() -> None:
    mapping = {ROOT / folder: name for name, folder in SETUPTOOLS["package-dir"].items()}
    present = set()
    for file in (file for top in mapping for file in top.rglob("__init__.py")):
        top = next(folder for folder in file.parents if folder in mapping)
        present.add(".".join([mapping[top], *file.parent.relative_to(top).parts]))
    assert present == set(SETUPTOOLS["packages"])


def test_every_source_folder_is_a_package() -> None:
    bare = [
        str(folder.relative_to(ROOT))
        for top in SETUPTOOLS["package-dir"].values()
        for folder in {file.parent for file in (ROOT / top).rglob("*.py")}
        if not (folder / "__init__.py").exists()
    ]
    assert bare == []


def test_locked_pandas_is_below_3() -> None:
    lines = [
        line
        for lock in sorted((ROOT / "locks").glob("*.txt"))
        for line in lock.read_text(encoding="utf-8").splitlines()
        if line.startswith("pandas==")
    ]
    assert all(line.startswith(("pandas==1.", "pandas==2.")) for line in lines), lines


def test_locks_name_no_host_and_no_place() -> None:
    for lock in sorted((ROOT / "locks").glob("*.txt")):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text and "--index-url" not in text and "--find-links" not in text
        assert str(ROOT) not in text


# --- the front door -------------------------------------------------------------------------------


def test_import_loads_nothing_heavy() -> None:
    assert not modules_loaded_by("import matwin; dir(matwin); matwin.__version__") & HEAVY


def test_a_question_loads_no_compiler() -> None:
    """Numba takes longer to load than a bad argument takes to be refused."""
    assert "numba" not in modules_loaded_by("import matwin.question")


def test_public_names_resolve() -> None:
    for name in matwin.__all__:
        assert name in dir(matwin)
        assert getattr(matwin, name) is not None
    assert matwin.InputError is InputError
    assert issubclass(matwin.CorruptPage, matwin.StoreError)
    assert matwin.storage.errors.InputError is InputError
    assert matwin.__version__ == version("matwin")


def test_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from matwin import *", names)
    assert set(matwin.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'matwin' has no attribute 'no_such_name'"):
        _ = matwin.no_such_name
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from matwin import no_such_name")


def test_the_stub_says_the_same_names() -> None:
    tree = ast.parse((ROOT / "matwin" / "__init__.pyi").read_text(encoding="utf-8"))
    stub = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: path.rpartition(".")[0] for name, path in matwin._MODULES.items()}
    assert stub == {**matwin._NAMES, **modules}


def test_the_package_is_typed() -> None:
    assert (Path(str(matwin.__file__)).parent / "py.typed").is_file()


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A command `matwin try` whose module a test can give a `run`."""
    module = types.ModuleType("matwin_test_command")

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=7)

    module.configure = configure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, ("bench", "try"), cli.Command(module.__name__, "try it"))
    return module


def test_the_console_script_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="matwin")
    assert script.load() is cli.main


def test_version_and_help_load_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"matwin {matwin.__version__}\n"
    code = "from matwin.tools import cli; cli.main(['--help']); cli.main(['--version'])"
    assert not modules_loaded_by(code) & HEAVY


@pytest.mark.parametrize("words", [[], ["bench"], ["no-such-command"], ["bench", "try", "--no"]])
def test_bad_usage_exits_with_2(
    words: list[str], command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.run = lambda args: 0  # type: ignore[attr-defined]
    assert cli.main(words) == 2
    assert "error:" in capsys.readouterr().err


def test_a_command_gets_its_arguments(command: types.ModuleType) -> None:
    command.run = lambda args: args.rows  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 7
    assert cli.main(["bench", "try", "--rows", "3"]) == 3


def test_our_errors_are_one_line(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise InputError("column 't' is missing;\n  name another")

    command.run = run  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == "matwin: error: column 't' is missing; name another\n"


def test_an_interrupt_is_130_and_a_bug_stays_loud(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    def buggy(args: argparse.Namespace) -> int:
        raise ZeroDivisionError

    command.run = interrupted  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 130
    command.run = buggy  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 70, "1 is for DuckDB, who disagrees"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_what_the_system_refuses_is_one_line(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise error

    command.run = run  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("matwin: error: ") and err.count("\n") == 1 and len(err) > 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_breaks_off_once(command: types.ModuleType, number: int) -> None:
    before, cleaned = signal.getsignal(number), []

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(signal.SIGTERM)  # while somebody cleans up
            cleaned.append(True)
        return 0

    command.run = run  # type: ignore[attr-defined]
    assert cli.main(["bench", "try"]) == 128 + signal.SIGTERM
    assert cleaned == [True]
    assert signal.getsignal(number) is before


SPEAKER = """
import sys
from matwin.tools import cli

class speaker:
    configure = staticmethod(lambda parser: None)
    run = staticmethod(lambda args: print("a line") or 0)

sys.modules["speaker"] = speaker
cli.COMMANDS["speak",] = cli.Command("speaker", "say a line")
sys.exit(cli.main(["speak"]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_is_no_noise(unbuffered: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            [sys.executable, "-c", SPEAKER],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=write_end,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (141, b"")
