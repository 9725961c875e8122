"""CALLER skips functions that allocate for their caller. fixtures/userland/wrapped.cc knows the callers."""

from __future__ import annotations

from functools import cache

import pytest

from dmods._engine import demangle
from dmods.command import find_command
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.records.wrappers import is_wrapper
from fixtures import audited
from fixtures.truth import Truth
from tests.auditkit import answer


@cache
def wrapped() -> tuple[CoreFile, Truth]:
    made = audited.take("wrapped")
    return CoreFile(str(made.core)), made.truth


def caller(address: int, *words: str) -> str:
    """Return the function that bufctl names as the caller, without its offset."""
    target, _truth = wrapped()
    (row,) = answer(target, "bufctl", *words, hex(address))["tables"]["bufctl"]
    found: str = row["caller"]
    return found.partition("+0x")[0]


def test_the_caller_is_the_first_function_that_is_no_wrapper() -> None:
    _target, truth = wrapped()
    chosen = {block.name: block for block in truth.blocks.values()}
    assert len(chosen) == 17
    for name, block in chosen.items():
        assert caller(block.address) == name.partition("(")[0]


def test_skip_names_further_wrappers() -> None:
    _target, truth = wrapped()
    (block,) = [block for block in truth.blocks.values() if block.size == 1011]
    assert caller(block.address) == "house_allocator"
    assert caller(block.address, "--skip", "^house_") == "uses_house_allocator"
    assert caller(block.address, "--skip", "house") == "main"


def test_all_frames_names_what_called_the_allocator() -> None:
    _target, truth = wrapped()
    for size, function in ((1001, "zmalloc"), (1005, "xmalloc"), (1010, "calls_malloc")):
        (block,) = [block for block in truth.blocks.values() if block.size == size]
        assert caller(block.address, "--all-frames") == function
    (vector,) = [block for block in truth.blocks.values() if block.name == "uses_a_vector"]
    assert caller(vector.address, "--all-frames").startswith("std::")


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(UsageError, match="regular expression"):
        find_command("findleaks").parser().parse_args(["--skip", "("])


@pytest.mark.parametrize(
    "name",
    [
        *("zmalloc", "zcalloc_num", "ztrymalloc_usable", "ztryrealloc_usable_internal", "zmalloc_cache_aligned"),
        *("xmalloc", "xcalloc", "xrealloc", "xzalloc", "xreallocarray", "x2nrealloc", "xmallocz", "sh_xmalloc"),
        *(
            "g_malloc",
            "g_malloc0_n",
            "g_try_realloc",
            "g_slice_alloc0",
            "apr_palloc",
            "apr_pcalloc",
            "talloc_named_const",
        ),
        *("ngx_alloc", "ngx_palloc", "ngx_pcalloc", "ngx_palloc_large", "CRYPTO_zalloc", "sqlite3_malloc64", "palloc0"),
        *("PyMem_Malloc", "PyMem_RawRealloc", "_PyMem_RawMalloc", "_PyMem_DebugRawAlloc", "PyObject_Malloc"),
        *("_PyObject_GC_NewVar", "PyObject_Calloc", "PyType_GenericAlloc", "_PyObject_GC_New", "luaM_malloc_"),
        *("_emalloc", "_safe_erealloc", "ruby_xmalloc", "objspace_xmalloc0", "uv__malloc", "av_mallocz", "zcalloc"),
        *(
            "_cgo_b1a1e0a1c3d4_Cfunc__Cmalloc",
            "__cxa_allocate_exception",
            "xmalloc.part.0",
            "zmalloc.constprop.0.isra.0",
        ),
        "_Znwm",
        "_ZN3app3FoonwEm",  # app::Foo::operator new(unsigned long)
        "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_createERmm",
        "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
        "_ZN9__gnu_cxx13new_allocatorIiE8allocateEmPKv",
        "_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE",
    ],
)
def test_wrappers_by_name(name: str) -> None:
    assert is_wrapper(name, demangle(name))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "strdup",
            "g_strdup",
            "g_memdup2",
            "sdsnewlen",
            "PyList_New",
            "PyUnicode_New",
            "main",
            "malloc_stats",
            "by_malloc",
        ),
        *(
            "my_zmalloc_user",
            "xmalloc_die",
            "fopen",
            "xstrdup",
            "buf_create",
            "func_leak",
            "ngx_http_parse",
            "palloc_test",
        ),
        "_ZN4core6Engine4loadEv",  # core::Engine::load() of a C++ program, not Rust's core
        "_ZN5alloc4Pool4makeEv",
        "_ZN2ns5ClassIiE4growEi",
        "_ZN3app4mainE",
        "_ZN3app6loader4load17h0123456789abcdefE",
        "_ZN49_$LT$app..Foo$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
    ],
)
def test_functions_that_do_more_than_allocate(name: str) -> None:
    assert not is_wrapper(name, demangle(name))
