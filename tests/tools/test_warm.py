"""`matwin warm` compiles what joins need; a second call has nothing left to do."""

from __future__ import annotations

from support import run_child

WARM = "import sys; from matwin.tools.cli import main; sys.exit(main(['warm']))"


def test_a_second_call_compiles_nothing() -> None:
    first, second = run_child(WARM), run_child(WARM)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert second.stdout.startswith("all kernels are compiled already"), second.stdout
