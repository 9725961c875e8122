"""The functions on a stack, and which of them belong to a runtime and not to the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.base.regex import regex

HANDLER = "<signal handler called>"  # gdb's words for the code that a handler of signals returns to
_OFFSET = regex(r"\+0x[0-9a-f]+$")
_PART = regex(r"(?:\.(?:constprop|isra|part|cold|lto_priv)(?:\.\d+)?)+$")  # what compilers add to a function's name
# Libraries that pass a fault on: the C and C++ runtimes, the linker, allocators, recorders.
_RUNTIME_LIBRARIES = regex(
    r"^(lib(c|c-[0-9.]+|pthread|pthread-[0-9.]+|stdc\+\+|c\+\+|c\+\+abi|gcc_s|unwind|dmods_audit|jemalloc|tcmalloc"
    r"(_minimal)?|mimalloc)\.so|ld-(linux|musl)|ld-[0-9.]+\.so|\[vdso\])"
)
# The same functions in a static program, and those of Rust and Go, which always are.
_RUNTIME_FUNCTIONS = regex(
    r"^(_*(abort|raise|gsignal|pthread_kill(_implementation|_internal)?|kill|tgkill)$|__libc_|__assert|__GI_|"
    r"__stack_chk_fail|__fortify_fail|__chk_fail|malloc_printerr|_int_(free|malloc|realloc|memalign)|_?unlink_chunk|"
    r"malloc_consolidate|sysmalloc|tcache_|__(malloc|free|calloc|realloc|memalign)$|(malloc|free|calloc|realloc|cfree|"
    r"memalign|aligned_alloc|posix_memalign|valloc|pvalloc|operator (new|delete)(\[\])?)(\(.*\))?$|"
    r"__(mem|str|stp|sn|vsn|s)[a-z]*_chk$|__(mem|str|stp)[a-z]*_(sse|avx|evex|erms|unaligned)|"
    r"__cxa_|__cxxabiv1|__gnu_cxx::|std::terminate|std::__throw_|_Unwind_|"
    r"rust_panic|rust_begin_unwind|rust_eh_|__rust|_?R?.*panic_unwind|core::panicking|core::option::(unwrap|expect)_failed|"
    r"core::result::unwrap_failed|core::slice::index|core::str::slice_error|alloc::alloc::handle_alloc|"
    r"std::(panicking|panic|process|rt|sys|sys_common|alloc)::|<.*panic.*>|"
    r"core::(option|result)::(Option|Result)<.*>::(unwrap|expect)|alloc::raw_vec::|"
    r"runtime\.(?!main\b))|" + HANDLER
)


def function_of(place: str) -> str:
    """Return the function of ``module`function+0x12``, without its module and offset."""
    return _OFFSET.sub("", place.partition("`")[2] or place)


def library_of(place: str) -> str:
    """Return the module before the backquote, or "" for the program."""
    return place.partition("`")[0] if "`" in place else ""


def is_runtime_library(module: str) -> bool:
    """Return whether a module is a C or C++ runtime, an allocator or the linker, by its name alone."""
    return bool(_RUNTIME_LIBRARIES.match(module))


def is_runtime(place: str) -> bool:
    """Return whether a runtime stands there, and not the program or a library of its own."""
    library = library_of(place)
    return is_runtime_library(library) or bool(_RUNTIME_FUNCTIONS.match(_PART.sub("", function_of(place))))


def first_own(places: Sequence[str]) -> Optional[int]:
    """Return the index of the first place that is not a runtime's, or None."""
    return next((index for index, place in enumerate(places) if not is_runtime(place)), None)


def has(places: Sequence[str], pattern: str) -> Optional[str]:
    """Return the first function that the pattern matches from its beginning, or None."""
    wanted = re.compile(pattern)
    return next((function for function in map(function_of, places) if wanted.match(function)), None)
