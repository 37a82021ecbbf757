"""Numba without its last step: what it compiles stays LLVM's code.

    function and all it calls ──▶ typed ──▶ LLVM's code, linked ──▶ (machine code, for each of them)

Numba makes each function that another calls fit to be called by itself: it is optimized in full and
becomes machine code.  A kernel calls thirty, and none of that is ever used.  Here functions are
inlined and linked only; the kernel is optimized and emitted once, at the end (`emit`): a process
whose first join needs the largest takes 3.5 s of CPU, and took 5.3 with Numba's own last step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def only_linked() -> Iterator[None]:
    """What is compiled here has no machine code: no other thread may compile meanwhile."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    with global_compiler_lock:
        context = cpu_target.target_context
        usual = context._internal_codegen
        context._internal_codegen = codegen()
        try:
            yield
        finally:
            context._internal_codegen = usual


@cache
def codegen() -> Any:
    """What stands in for Numba's own."""
    from numba.core import codegen as numbas

    known: Any = numbas

    class Library(known.JITCodeLibrary):  # type: ignore[misc]
        def _optimize_final_module(self) -> None:
            passes, builder = self._codegen._module_pass_manager(
                loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
            )
            passes.run(self._final_module, builder)

        def _finalize_specific(self) -> None: ...

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

    class Codegen(known.JITCPUCodegen):  # type: ignore[misc]
        _library_class = Library

        def _customize_tm_options(self, options: Any) -> None:
            super()._customize_tm_options(options)
            options.update(reloc="static", codemodel="large", jit=False)

        def _add_module(self, module: Any) -> None: ...

        def set_env(self, env_name: str, env: Any) -> None: ...

    return Codegen("matwin.kernels")
