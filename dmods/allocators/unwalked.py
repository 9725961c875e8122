"""Heaps that dmods does not walk, of language runtimes and of other allocators, and the notes about them.

Their memory is searched for pointers like any other memory, so what it points to is not reported as leaked. Where the
auditor recorded their blocks, ``heap.recorded`` knows more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Callable, Optional

from dmods._engine import elf_section
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.base.sizes import human_size
from dmods.process.addresses import module_at
from dmods.target import AddressRange, Module, Target


class Runtime(NamedTuple):
    """A language runtime with a heap of its own. `files` and `symbol` are as in ``Other``.

    A program with the `section` has the runtime, and with that of another runtime it has the other.
    ``pointed``: each mapping of its heap has a plain pointer to it, from another one or from malloc's memory. ``hides``
    says where its programs may keep an address in another form.
    """

    what: str
    name: str
    files: str
    symbol: str
    section: str = ""
    pointed: bool = False
    hides: str = ""


RUNTIMES = (
    Runtime("a Java virtual machine", "Java", r"libjvm\.so$", "JNI_CreateJavaVM"),
    # Bun. It has some symbols of V8 and of Node.js for their modules. WTF's configuration has a section of its own
    # (Source/WTF/wtf/WTFConfig.cpp), under the name that Darwin has for it.
    Runtime(
        "a program with the JavaScript engine JavaScriptCore",
        "JavaScriptCore",
        r"/lib(javascriptcoregtk|JavaScriptCore|WPEWebKit|webkit2?gtk)[-.][^/]*$",
        "JSGlobalContextCreate",
        "__DATA,__wtf_config",
    ),
    Runtime("a program with the JavaScript engine V8", "V8", r"/lib(node|v8)[-.][^/]*$", "node_module_register"),
    Runtime("an Erlang virtual machine (BEAM)", "Erlang", r"/beam(\.[a-z]+)*$", "enif_alloc"),
    Runtime(
        "a Ruby interpreter",
        "Ruby",
        r"/libruby[-.0-9][^/]*$",
        "ruby_init",
        pointed=True,  # gc.c: heap_pages.sorted; cont.c: fiber_pool_allocation.base
        hides="a Ruby program may keep an address as an Integer, which has another value in memory",
    ),
    Runtime(
        "a PHP interpreter",
        "PHP",
        r"/libphp[0-9.]*\.so[^/]*$",
        "php_module_startup",
        pointed=True,  # Zend/zend_alloc.c: chunks are a ring, huge_list has the large blocks
    ),
    Runtime("a .NET runtime", ".NET", r"/libcoreclr\.so$", "coreclr_initialize"),
)


class Other(NamedTuple):
    """An allocator that replaces malloc.

    `files` is a pattern for the whole path of its library. `symbol` is a symbol of programs that are linked with it
    statically.
    """

    name: str
    files: str
    symbol: str


_VALGRIND = "Valgrind's malloc"
# Its tools that replace malloc (coregrind/m_replacemalloc). The others load vgpreload_core alone.
_VALGRIND_FILES = r"vgpreload_(memcheck|massif|dhat|helgrind|drd|exp-[^/]*)-[^/]*\.so$"

OTHERS = (
    Other("tcmalloc", r"libtcmalloc[^/]*$", "tc_malloc"),  # gperftools
    # github.com/google/tcmalloc, which is always part of the program. The second: the crate tcmalloc-better
    Other("google/tcmalloc", r"(?!)", "TCMallocInternalMalloc"),
    Other("google/tcmalloc", r"(?!)", "BridgeTCMallocInternalNewAlignedNothrow"),
    Other("mimalloc", r"libmimalloc[^/]*$", "mi_malloc"),
    # Firefox's allocator, derived from jemalloc. On Linux libmozglue is part of the program.
    Other("mozjemalloc", r"libmozglue[^/]*$", "moz_arena_malloc"),
    Other("musl's malloc", r"ld-musl-[^/]*$|-musl/libc\.so$|libc\.musl-[^/]*$", "__libc_malloc_impl"),
    Other("AddressSanitizer's malloc", r"lib(asan|clang_rt\.asan)[^/]*$", "__asan_init"),
    Other("HWAddressSanitizer's malloc", r"lib(hwasan|clang_rt\.hwasan)[^/]*$", "__hwasan_init"),
    Other("ThreadSanitizer's malloc", r"lib(tsan|clang_rt\.tsan)[^/]*$", "__tsan_init"),
    Other("MemorySanitizer's malloc", r"libclang_rt\.msan[^/]*$", "__msan_init"),
    Other("LeakSanitizer's malloc", r"lib(lsan|clang_rt\.lsan)[^/]*$", "__lsan_init"),
    Other("Scudo", r"lib(scudo|clang_rt\.scudo)[^/]*$", "__scudo_get_error_info"),
    Other("snmalloc", r"libsnmalloc[^/]*$", "sn_malloc"),
    Other("snmalloc", r"(?!)", "sn_rust_alloc"),  # the crate snmalloc-rs
    Other("rpmalloc", r"librpmalloc[^/]*$", "rpmalloc"),
    Other("rpmalloc", r"(?!)", "rpmalloc_initialize"),  # where the linker drops functions that nobody calls
    Other(_VALGRIND, _VALGRIND_FILES, "(?!)"),
    Other("Hoard", r"libhoard[^/]*$", "xxmalloc"),
)


AUDITOR = "libdmods_audit"
_SHADOW = 1 << 40  # bytes of the least mapping that is taken for shadow memory
_GIB = 1 << 30


def _is_shadow(mapping: AddressRange) -> bool:
    """Return whether it may be shadow memory of a sanitizer, which reserves terabytes of it."""
    return mapping.size >= _SHADOW


def _is_region(mapping: AddressRange) -> bool:
    """Return whether it may be part of a region of google/tcmalloc: a GiB at a multiple of a GiB (kMinMmapAlloc).

    Its last pages are used first.
    """
    return mapping.start % _GIB == 0 or mapping.end % _GIB == 0


def _is_reserved(mapping: AddressRange) -> bool:
    """Return whether it may be the rest of what Scudo reserved for a size class: some GiB, used from the beginning."""
    return mapping.size >= _GIB and not set(mapping.flags) & set("rwx")


class Inside(NamedTuple):
    """An allocator that is linked into a program, stripped or not.

    `constant` is a string of its code that stays in the program. `takes` says whether an anonymous mapping may be its.
    """

    name: str
    constant: bytes
    takes: Callable[[AddressRange], bool]


# Names of the variables that they read (compiler-rt: sanitizer_flags.cpp, scudo's flags.cpp), and of google/tcmalloc's
# mappings (MmapAlignedLocked, since 2023). A debugger has such constants as well: the memory must be there, too.
INSIDE = (
    Inside("HWAddressSanitizer's malloc", b"HWASAN_OPTIONS", _is_shadow),
    Inside("AddressSanitizer's malloc", b"ASAN_OPTIONS", _is_shadow),
    Inside("ThreadSanitizer's malloc", b"TSAN_OPTIONS", _is_shadow),
    Inside("MemorySanitizer's malloc", b"MSAN_OPTIONS", _is_shadow),
    Inside("google/tcmalloc", b"tcmalloc_region_%s", _is_region),
    Inside("google/tcmalloc", b"TCMALLOC_HPAA_CONTROL", _is_region),
    Inside("Scudo", b"SCUDO_OPTIONS", _is_reserved),
)


def unwalked_malloc(target: Target) -> Optional[str]:
    """Return the name of the allocator that serves malloc, if it is neither glibc's nor jemalloc."""
    # Valgrind redirects the calls of all malloc() functions as it translates the code. No symbol says so.
    if any(re.search(_VALGRIND_FILES, module.path) for module in target.modules()):
        return _VALGRIND
    malloc = target.lookup("malloc")
    if malloc is None:
        return None
    module = module_at(target, malloc.address)
    if module is None:
        return None
    # The auditor passes every call on to the allocator that is loaded after it.
    modules = target.modules() if module.name.startswith(AUDITOR) else [module]
    return next((name for each in modules if (name := allocator_in(target, each)) is not None), None)


def allocator_in(target: Target, module: Module) -> Optional[str]:
    """Return the name of the allocator that the module's path, or the program's symbols, tell."""
    program = module.path == target.executable
    for other in OTHERS:
        if re.search(other.files, module.path) or (
            program and target.lookup(f"{module.name}`{other.symbol}") is not None
        ):
            return other.name
    return linked_in(target) if program else None


@cached
def linked_in(target: Target) -> Optional[str]:
    """Return the name of an allocator that is linked into the program, stripped or not. None without one.

    Both must be there: the constant, and memory as it takes it. The constants are read from the program's file.
    """
    program = _program(target)
    mappings = [mapping for mapping in target.mappings() if mapping.anonymous]
    taking = {one.takes for one in INSIDE if any(map(one.takes, mappings))}
    if program is None or not taking:
        return None
    constants = elf_section(program.file or "", ".rodata") or b""
    return next((one.name for one in INSIDE if one.takes in taking and b"\0" + one.constant + b"\0" in constants), None)


def unwalked_heap_notes(
    target: Target, walked: Sequence[str], other_bytes: Callable[[], tuple[int, int]], foreign: Sequence[str] = ()
) -> list[str]:
    """Return a note for each heap that is not walked, and one about the memory that may be theirs.

    ``walked`` are the names of the allocators whose blocks are known. ``other_bytes`` returns the bytes of anonymous
    memory that no allocator has, and how many of them are in the dump. ``foreign`` are the notes about a malloc() that
    has no name here.
    """
    modules = target.modules()
    program = _program(target)
    found = [*foreign]
    if is_go(target) and "Go" not in walked:
        found.append(_runtime_note("a Go program", "Go", " (cgo)"))
    found += [_runtime_note(runtime.what, runtime.name) for runtime in _runtimes(target)]
    others = [other for other in OTHERS if other.name not in walked]
    there = [other.name for other in others if _is_there(target, modules, program, other.files, other.symbol)]
    linked = linked_in(target)
    there += [linked] if linked is not None and linked not in walked else []
    for name in dict.fromkeys(there):
        found.append(f"blocks of {name} are not walked; what its memory points to counts as reachable")
    rest, dumped = other_bytes() if found else (0, 0)
    if rest:
        part = f"; {human_size(dumped)} of it are in the dump" if dumped < rest else ""
        size = f"{human_size(rest)} ({rest} bytes)"
        found.append(f"{size} of anonymous memory belong to no allocator that dmods walks{part}")
    return found


def pointed_runtimes(target: Target) -> dict[str, str]:
    """Return the note on each runtime of the process whose heap is reached by plain pointers, with what it hides."""
    return {_runtime_note(one.what, one.name): one.hides for one in _runtimes(target) if one.pointed}


def _runtimes(target: Target) -> list[Runtime]:
    """Return the runtimes of the process."""
    modules, program = target.modules(), _program(target)
    file = program.file or "" if program is not None else ""
    sure = [one for one in RUNTIMES if one.section and elf_section(file, one.section) is not None]
    return sure or [one for one in RUNTIMES if _is_there(target, modules, program, one.files, one.symbol)]


def is_named(target: Target, name: str) -> bool:
    """Return whether a module or a symbol of the program tells that the allocator is in the process."""
    modules, program = target.modules(), _program(target)
    return any(
        other.name == name and _is_there(target, modules, program, other.files, other.symbol) for other in OTHERS
    )


def is_go(target: Target) -> bool:
    """Return whether the program is one of Go.

    The linker writes the section into every Go program since 1.13 (cmd/link, buildinfo), and strip leaves it there.
    """
    program = _program(target)
    return program is not None and elf_section(program.file or "", ".go.buildinfo") is not None


def _program(target: Target) -> Optional[Module]:
    """Return the program itself, if its file is here."""
    return next((each for each in target.modules() if each.path == target.executable and each.file is not None), None)


def _runtime_note(what: str, name: str, more: str = "") -> str:
    return (
        f"{what}: {name}'s own heap is not walked, only malloc's{more}; what {name}'s memory points to counts as "
        f"reachable, whether {name} still needs it or not"
    )


def _is_there(target: Target, modules: Sequence[Module], program: Optional[Module], files: str, symbol: str) -> bool:
    """Return whether a module's path has the pattern, or the program has the symbol."""
    if any(re.search(files, module.path) for module in modules):
        return True
    return program is not None and target.lookup(f"{program.name}`{symbol}") is not None
