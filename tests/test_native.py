"""Kernels kept as machine code: the same numbers, no Numba, and no file that others wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run_child

from matwin.kernels import mates, skyline
from matwin.kernels.latest import number_keys
from matwin.scheduler.board import transposed
from matwin.storage import emit, image, kept, native
from matwin.storage.kernel import Kernel, kernel

pytestmark = pytest.mark.skipif(not native.is_possible(), reason="kept for Linux on x86-64 only")

JOIN = """
import os, sys
os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
import pyarrow as pa, matwin
from matwin.storage import kernel
kernel.PLAIN_SECONDS = 0.0
compiled = []
kernel.on_compiling = compiled.append
import numpy as np
from matwin.storage.arrays import arrow
a = pa.table({"t": arrow(np.arange(3000)), "x": arrow(np.arange(3000) % 7 / 7)})
last = matwin.asof_join(a, a, on="t").read_all()
pair = matwin.window_join({"a": a, "b": a}, time="t", windows=1).read_all()
rows = [table.num_rows for table in (last, pair)]
print(rows, bool(compiled), "numba" in sys.modules, "pandas" in sys.modules, sep="|")
"""


def joined(folder: Path) -> list[str]:
    child = run_child(JOIN, folder)
    assert child.returncode == 0, child.stderr
    return child.stdout.strip().split("|")


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{kept.SUFFIX}"))


def test_a_later_process_needs_no_compiler(tmp_path: Path) -> None:
    rows, *first = joined(tmp_path)
    assert first == ["True", "True", "False"]
    assert joined(tmp_path) == [rows, "False", "False", "False"]
    # Damaged in every way: compiled anew, with the same rows, and whole again.
    for number, file in enumerate(files(tmp_path)):
        data = bytearray(file.read_bytes())
        data[-(number % 100) - 1] ^= 1
        file.write_bytes(data if number % 2 else data[:-5])
    assert joined(tmp_path) == [rows, "True", "True", "False"]
    assert joined(tmp_path) == [rows, "False", "False", "False"]


def test_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(joined, [tmp_path] * 3))
    assert {rows for rows, *_ in found} == {found[0][0]}
    assert joined(tmp_path) == [found[0][0], "False", "False", "False"]
    assert not list(tmp_path.rglob("*.part"))


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kept.keep("code", b"something")
    assert kept.find("code") == b"something"
    return tmp_path / "matwin-kernels"


def test_only_files_that_nobody_else_writes(folder: Path) -> None:
    file = folder / f"code{kept.SUFFIX}"
    for mode in (0o664, 0o646):
        file.chmod(mode)
        assert kept.find("code") is None
    file.chmod(0o600)
    assert kept.find("code") == b"something"
    for mode in (0o770, 0o707):
        folder.chmod(mode)
        assert kept.find("code") is None
        assert not kept.keep("other", b"something")
    folder.chmod(0o700)
    assert kept.find("code") == b"something"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_only_files_of_this_user_or_root(folder: Path) -> None:
    os.chown(folder / f"code{kept.SUFFIX}", 12345, 12345)
    assert kept.find("code") is None
    os.chown(folder / f"code{kept.SUFFIX}", 0, 0)
    os.chown(folder, 12345, 12345)
    assert kept.find("code") is None


def test_links_and_pipes_are_not_followed(folder: Path) -> None:
    file = folder / f"code{kept.SUFFIX}"
    moved = file.rename(folder / "moved")
    file.symlink_to(moved)
    assert kept.find("code") is None
    file.unlink()
    file.mkdir()
    assert kept.find("code") is None


def test_every_flipped_bit_and_every_cut_is_noticed(folder: Path) -> None:
    file = folder / f"code{kept.SUFFIX}"
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at])
        assert kept.find("code") is None
        for bit in range(8):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            assert kept.find("code") is None
    file.write_bytes(whole + b"x")
    assert kept.find("code") is None


def test_without_a_place_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert not kept.keep("code", b"something")
    assert kept.find("code") is None


# ── what the code depends on ─────────────────────────────────────────────────────────────────────

LIMIT = 3


@kernel
def inner(value: Any) -> Any:
    return value + LIMIT


@kernel
def outer(values: Any) -> Any:
    total = 0
    for k in range(len(values)):
        total += inner(values[k])
    return total


def test_what_a_kernel_calls_and_its_constants_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = native.identity(outer.py_func)
    assert native.identity(outer.py_func) == before
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 4)
    assert native.identity(outer.py_func) != before
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules[__name__], "inner", kernel(lambda value: value - LIMIT))
    assert native.identity(outer.py_func) != before
    monkeypatch.setattr(sys.modules[__name__], "inner", object())
    with pytest.raises(native.Unsupported):
        native.identity(outer.py_func)


def test_settings_and_processor_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.machine.__wrapped__()
    assert "flags" in before
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert kept.machine.__wrapped__() != before
    monkeypatch.undo()
    monkeypatch.setattr(kept, "_processor", lambda: ["another"])
    assert kept.machine.__wrapped__() != before


def test_object_files_that_need_more_are_refused() -> None:
    for data in (b"\x7fELF" + bytes(200), bytes(64)):
        with pytest.raises(image.Unlinkable):
            image.linked(data, "entry")


# ── the same as Numba ────────────────────────────────────────────────────────────────────────────


def both(function: Kernel[..., Any], *args: Any) -> tuple[Any, Any]:
    """What machine code and Numba give, each with its own arrays."""
    ours, theirs = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args] for _ in "ab")
    kinds, words = native.described(ours)
    code = native.Native(function.py_func).code(kinds)
    assert code is not None
    return (code(words), ours), (function.dispatcher(*theirs), theirs)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    return bool(one == other) and type(one) is type(other)


small = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(small, st.integers(1, 3))
def test_arrays_in_and_out(values: list[int], width: int) -> None:
    groups = np.sort(np.array(values))
    keys = np.random.default_rng(len(values)).integers(0, 4, (len(values), width))
    assert same(*both(skyline.best_of_groups, groups, keys))
    assert same(*both(mates.distinct, groups, keys))
    table, seen, numbers = np.full(128, -1), np.empty_like(groups), np.empty_like(groups)
    assert same(*both(number_keys, groups, table, seen, numbers))


def test_types_and_layouts() -> None:
    starts, first, limit = (
        np.array([0, 1, 2]),
        np.array([0, 1], np.int32),
        np.array([2, 3], np.int32),
    )
    assert same(*both(transposed, starts, first, limit, 3))

    @kernel
    def mixed(numbers: Any, flag: Any, scale: Any, pair: Any) -> Any:
        total = 0.0
        for k in range(numbers.shape[0]):
            for i in range(numbers.shape[1]):
                total += numbers[k, i] * scale
        return total, flag, pair[0][0] + pair[1], numbers.shape[1]

    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    for numbers in (wide, wide[:, ::2], wide.T, wide[:0]):
        args = (numbers, True, 0.5, (np.arange(3), -7))
        kinds, words = native.described(args)
        code = native.Native(mixed.py_func).code(kinds)
        assert code is not None
        assert code(words) == (float(numbers.sum()) / 2, True, -7, numbers.shape[1])


def test_what_is_not_supported_is_left_to_numba() -> None:
    odd = np.frombuffer(bytearray(17), np.int64, 2, 1)
    for value in (None, "text", np.arange(2).astype("M8[s]"), odd, 2**63, np.int32(1)):
        with pytest.raises(native.Unsupported):
            native.described((value,))

    @kernel
    def lists(values: Any) -> Any:
        found = [0]
        for k in range(len(values)):
            found.append(values[k])
        return len(found)

    kinds, _ = native.described((np.arange(3),))
    own = native.Native(lists.py_func)
    assert own.code(kinds) is None
    assert lists(np.arange(3)) == 4


def test_results_own_their_memory() -> None:
    """A hundred results of 8 MB, each of which goes when nobody has it."""
    groups, keys = np.arange(1_000_000), np.zeros((1_000_000, 1), np.int64)
    kinds, words = native.described((groups, keys))
    code = native.Native(skyline.best_of_groups.py_func).code(kinds)
    assert code is not None
    kept_one = code(words)[5:]
    before = _resident()
    for _ in range(100):
        assert len(code(words)) == 1_000_000
    assert _resident() - before < 100 << 20
    assert (kept_one == np.arange(5, 1_000_000)).all()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_array_beyond_all_memory() -> None:
    @kernel
    def large(count: Any) -> Any:
        return len(np.empty(count, np.int64))

    kinds, words = native.described((1 << 55,))
    code = native.Native(large.py_func).code(kinds)
    assert code is not None
    with pytest.raises(MemoryError, match="large"):
        code(words)


def test_one_object_is_linked_once() -> None:
    kinds, _ = native.described((np.arange(3),))
    told, _, data = emit.emitted(outer.py_func, kinds).partition(b"\n")
    made = image.Image.from_bytes(data)
    assert told == b"int64:-1"
    assert image.Image.from_bytes(made.to_bytes()) == made
    with pytest.raises(image.Unlinkable):
        image.c_address("system")
