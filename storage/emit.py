"""What Numba has compiled, as an image that needs neither Numba nor LLVM.

    function ──Numba──▶ LLVM's code, all that it calls inside
             ──and───▶ an entry that takes words, and the two functions that allocate arrays
             ──LLVM──▶ object file ──▶ image

Numba calls a compiled function with the address for its result, that for an error, and each field
of each array as an argument of its own; the entry makes those of an array object.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import native
from .image import linked
from .library import codegen, only_linked

ENTRY = "matwin_entry"

# Numba's arrays are owned by a block of six words: references, how to destroy, for whom, data,
# size, allocator.  Compiled code counts the references and reads where the data is.
ALLOCATION = """
declare ptr @malloc(i64)
declare void @free(ptr)
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
  %head = add i64 %wide, 48
  %all = add i64 %size, %head
  %owner = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %owner, null
  br i1 %none, label %failed, label %made
failed:
  ret ptr null
made:
  %start = ptrtoint ptr %owner to i64
  %end = add i64 %start, %head
  %off = urem i64 %end, %wide
  %at = sub i64 %end, %off
  call void @llvm.memset.p0.i64(ptr %owner, i8 0, i64 48, i1 false)
  store i64 1, ptr %owner
  %data = getelementptr i64, ptr %owner, i64 3
  store i64 %at, ptr %data
  %sizes = getelementptr i64, ptr %owner, i64 4
  store i64 %size, ptr %sizes
  ret ptr %owner
}
define void @NRT_MemInfo_call_dtor(ptr %owner) {
  call void @free(ptr %owner)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def emitted(function: Callable[..., Any], kinds: native.Kinds) -> bytes:
    """What `native` loads: a line on what is returned, and an image."""
    from .kernel import bare

    dispatcher = bare(function)
    signature = tuple(_type(kind) for kind in kinds)
    was_on = gc.isenabled()
    gc.disable()  # compiling makes millions of objects, little of it garbage: 3.8 s for 4.1
    try:
        with only_linked():
            dispatcher.compile(signature)
    finally:
        if was_on:
            gc.enable()
    result = dispatcher.overloads[signature]
    returned = _returned(result.signature.return_type)
    text = result.library.get_llvm_str()
    code = _object(text, result.fndesc.llvm_func_name, kinds)
    return native.told(returned).encode() + b"\n" + linked(code, ENTRY).to_bytes()


def _type(kind: Any) -> Any:
    """Numba's type for a kind of argument."""
    from numba import types as known
    from numba.np.numpy_support import from_dtype

    types: Any = known
    if isinstance(kind, str):
        return from_dtype(np.dtype(kind))
    if native.is_tuple(kind):
        held = [_type(each) for each in kind[1]]
        is_named = hasattr(kind[0], "_fields")
        return types.NamedTuple(held, kind[0]) if is_named else types.Tuple(held)
    dtype, ndim, is_contiguous = kind
    return types.Array(from_dtype(np.dtype(dtype)), ndim, "C" if is_contiguous else "A")


def _returned(kind: Any) -> tuple[native.Returned, ...] | None:
    from numba import types

    if isinstance(kind, types.NoneType):
        return None
    if isinstance(kind, types.Tuple | types.UniTuple):
        return tuple(_one(each) for each in kind)
    return (_one(kind),)


def _one(kind: Any) -> native.Returned:
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.Array):
        return native.Returned(str(as_dtype(kind.dtype)), kind.ndim)
    if isinstance(kind, types.Integer | types.Float | types.Boolean):
        return native.Returned(str(as_dtype(kind)))
    raise native.Unsupported


def _object(text: str, name: str, kinds: native.Kinds) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    wanted = [str(argument.type) for argument in module.get_function(name).arguments]
    module.link_in(llvm.parse_assembly(ALLOCATION))
    module.link_in(llvm.parse_assembly(_entry(name, kinds, wanted)))
    for one in module.functions:
        if one.name != ENTRY and not one.is_declaration:
            one.linkage = "internal"  # whoever is inlined everywhere goes
    passes, builder = codegen()._module_pass_manager()
    passes.run(module, builder)
    made: bytes = codegen()._tm.emit_object(module)
    return made


def _entry(name: str, kinds: native.Kinds, wanted: list[str]) -> str:
    """The function that takes words and calls the compiled one."""
    lines = Lines()
    words = list(native.flat(kinds))
    given = [f"ptr {lines.word(len(words), 'ptr')}", "ptr %error"]
    for at, kind in enumerate(words):
        if isinstance(kind, str):
            given.append(lines.scalar(at, wanted[len(given)]))
        else:
            given += lines.array(at, kind)
    if [argument.split()[0] for argument in given] != wanted:
        raise native.Unsupported
    types = ", ".join(wanted)
    return "\n".join((
        f"declare i32 @{name}({types})", f"define i32 @{ENTRY}(ptr %words) {{",
        "%error = alloca ptr", *lines.lines,
        f"%status = call i32 @{name}({', '.join(given)})", "ret i32 %status", "}",
    ))  # fmt: skip


class Lines:
    """LLVM's text, an instruction a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def set(self, instruction: str) -> str:
        """A new name for what an instruction gives."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def at(self, base: str, offset: int, kind: str) -> str:
        """What lies so many bytes after an address."""
        place = self.set(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.set(f"load {kind}, ptr {place}")

    def word(self, number: int, kind: str) -> str:
        """The address of a word (`ptr`) or what is in it."""
        if kind == "ptr":
            return self.set(f"getelementptr i64, ptr %words, i64 {number}")
        return self.at("%words", 8 * number, kind)

    def scalar(self, number: int, kind: str) -> str:
        """A number as an argument: the low bytes of its word."""
        if kind == "i1":
            byte = self.word(number, "i8")
            return f"i1 {self.set(f'trunc i8 {byte} to i1')}"
        return f"{kind} {self.word(number, kind)}"

    def array(self, number: int, kind: tuple[str, int, int]) -> Iterator[str]:
        """The arguments for an array."""
        dtype, ndim, _ = kind
        fields = self.at("%words", 8 * number, "ptr")
        data, dimensions, strides = (self.at(fields, native.HEAD + at, "ptr") for at in (0, 16, 24))
        shape = [self.at(dimensions, 8 * axis, "i64") for axis in range(ndim)]
        steps = [self.at(strides, 8 * axis, "i64") for axis in range(ndim)]
        items = "1"
        for size in shape:
            items = self.set(f"mul i64 {items}, {size}")
        yield from ("ptr null", "ptr null", f"i64 {items}", f"i64 {np.dtype(dtype).itemsize}")
        yield from (f"ptr {data}", *(f"i64 {value}" for value in (*shape, *steps)))
