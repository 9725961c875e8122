"""Functions that allocate on behalf of their caller. CALLER skips them.

One entry of a table is one library or runtime. To add a wrapper, add its name to the pattern. A pattern must match the
whole name, as dmods prints it: demangled, without parameters, without the suffix of a compiler's clone (``.part.0``).

A function that does more than allocate is no wrapper. It says what the memory is for, so it stays the caller:
``strdup``, ``g_strdup``, ``sdsnewlen``, ``PyList_New``.
"""

from __future__ import annotations

import re
from functools import cache

from dmods.base.clones import function_of_clone
from dmods.base.regex import regex

# Names of C functions. They are not mangled.
C = {
    "programs that exit when memory runs out (GNU, BSD, git, OpenSSH)": (
        r"(sh_|do_|rpl_)?x(n|2|2n|i|in)?(m|c|z|re|p|char|align|ialign)alloc(z|_flags|_array|_gently|array)?"
        r"|xmemalign|xrecallocarray"
    ),
    "BSD and systemd": r"(malloc|realloc|calloc)(_multiply|_array)|greedy_realloc(0|_append)?|reallocf|recallocarray",
    "Redis and Valkey": (
        r"(valkey_)?z(try)?(m|c|re)alloc(_num)?(_usable)?(_internal)?(_no_tcache|_cache_aligned|_with_flags)?"
    ),
    "hiredis": r"hi_(m|c|re)alloc(_cb)?",
    "Lua": r"l_alloc|luaM_(re)?alloc_|luaM_(malloc|growaux|saferealloc|shrinkvector|toobig)_",
    "GLib": (
        r"g_(try_)?(malloc|malloc0|realloc)(_n)?|g_(aligned_alloc|slice_alloc)0?|g_(atomic_)?rc_box_alloc(0|_full)?"
        r"|g_mem_chunk_alloc0?|standard_(try_)?(m|c|re)alloc"
    ),
    "Apache's portable runtime": (
        r"apr_(palloc|pcalloc)(_debug)?|apr_(allocator_alloc|bucket_alloc)|apr_pool_create(_\w+)?|(allocator|pool)_alloc"
    ),
    "nginx": (
        r"ngx_(alloc|calloc|memalign|palloc|pnalloc|pcalloc|pmemalign|palloc_(small|block|large)|create_pool)"
        r"|ngx_slab_c?alloc(_locked)?"
    ),
    "talloc": r"_?_?talloc(_(named|const|pool|pooled_object|zero|array|realloc|with_prefix))*",
    "OpenSSL": r"(CRYPTO|OPENSSL)_(secure_)?(clear_)?(malloc|zalloc|calloc|realloc|aligned_alloc)(_array)?",
    "SQLite": (
        r"sqlite3(_malloc|_realloc)(64)?|sqlite3(Malloc|MallocZero|Realloc|MemMalloc|MemRealloc|PageMalloc)"
        r"|sqlite3Db(Malloc|Realloc)\w*|mallocWithAlarm|db(Malloc|Realloc)\w*Finish|pcache1Alloc"
    ),
    "PostgreSQL": (
        r"(re)?palloc(0|_extended|0_array|_array|_huge|_aligned)?|pg_(malloc|malloc0|realloc|malloc_extended|malloc_internal)"
        r"|MemoryContextAlloc\w*|(AllocSet|Generation|Slab|Bump)(Alloc|Realloc)\w*"
    ),
    "MySQL and MariaDB": r"my_(raw_)?(m|c|re)alloc|my_multi_malloc|(multi_)?alloc_root|ut_malloc_low",
    "PHP": (
        r"_?(safe_)?p?e(m|c|re)alloc2?(_\w+)?|_?safe_(m|re)alloc|__zend_(m|c|re)alloc|_?zend_mm_alloc\w*|zend_mm_realloc\w*"
        r"|zend_arena_c?alloc"
    ),
    "Ruby": (
        r"(ruby|rb)_x(m|c|re)alloc2?(_body|_mul_add(_mul)?)?|objspace_x(m|c|re)alloc(0|2)?|rb_gc_impl_(m|c|re)alloc"
        r"|rb_alloc_tmp_buffer\w*"
    ),
    "Perl": r"Perl_(safesys)?(m|c|re)alloc",
    "CPython": (
        r"_?Py(Mem|Object)_(Raw)?(Malloc|Calloc|Realloc)|_PyMem_\w*(Malloc|Calloc|Realloc|Alloc)"
        r"|_PyObject_Arena(Mmap|Malloc)|_?PyObject_(New|NewVar)|_?PyObject_GC_(\w*New\w*|Malloc|Calloc|Resize|Alloc)"
        r"|PyType_GenericAlloc|_PyType_AllocNoTrack|gc_alloc|pymalloc_(alloc|realloc)|new_arena|allocate_from_new_pool"
    ),
    "libuv": r"uv__(m|c|re)allocf?",
    "Go's cgo": (
        r"_cgo_[0-9a-f]+_C2?func_+C?(m|c|re)alloc|[\w./]+\._C2?func_+C?(m|c|re)alloc(\.func\d+|\.abi\w+)?"
        r"|_?cgo_cmalloc|(main|runtime)\._?cgo_cmalloc(\.abi\w+)?|runtime\.(asmcgocall|cgocall|systemstack)(\.abi\w+|_switch)?"
    ),
    "FFmpeg": r"av_(mallocz?|calloc|realloc|reallocp|realloc_f)(_array)?|av_fast_p?(m|re)allocz?|fast_malloc",
    "SDL": r"SDL_(m|c|re)alloc(_REAL)?|real_(m|c|re)alloc",
    "curl": r"curl_dbg_(m|c|re)alloc|Curl_saferealloc",
    "libxml2": r"xmlMem(Malloc|Realloc)|xml(Malloc|Realloc|MallocAtomic|Mem)Loc",
    "zlib": r"zcalloc",
    "Tcl": r"Tcl_(Attempt)?(DbCk|Db)?(Alloc|Realloc|alloc|realloc)|Tclp(Sys)?(Alloc|Realloc)",
    "Wireshark": r"wmem_(strict_|simple_|block_)?(alloc|alloc0|realloc)",
    "BIND": r"isc__?mem_(get|allocate|reget|reallocate|callocate|creget)|mem_get",
    "Qt": r"q(M|Re)alloc(Aligned)?|qMallocAligned|qReallocAligned",
    "C++ exceptions": r"__cxa_(allocate_(dependent_)?exception|vec_c?new[23]?)",
    "the dynamic loader": r"__rtld_(m|c|re)alloc|__minimal_(m|c|re)alloc|allocate_dtv|allocate_and_init",
}

# Names of C++ functions. The standard library's containers and smart pointers allocate for whoever uses them.
CPP = {
    "operator new, of the program or of a class": r"(.*::)?operator new(\[\])?",
    "the standard library": r"(std|__gnu_cxx|__cxxabiv1)::.*|\(anonymous namespace\)::pool::allocate",
    "Boost": r"boost::(container|alignment|pool|fast_pool_allocator|singleton_pool|detail::sp_alloc)\b.*",
    "Abseil": r"absl::(\w+::)?(container_internal|inlined_vector_internal|base_internal::LowLevelAlloc)\b.*",
    "folly": r"folly::(checked(M|C|Re)alloc|goodMallocSize|SysAllocator|fbstring_core|fbvector|small_vector)\b.*",
    "LLVM": r"llvm::(safe_(m|c|re)alloc|allocate_buffer|SmallVector\w+|BumpPtrAllocatorImpl|MallocAllocator)\b.*",
    "Qt": r"(QArrayData|QTypedArrayData<.*>|QListData|QHashData|QMapDataBase)::(\w*[aA]llocate\w*|detach\w*|create\w*)",
    "Node.js and V8": (
        r"node::(Unchecked)?(Malloc|Calloc|Realloc)(<.*>)?|v8::base::(Malloc|Calloc|Realloc|AlignedAlloc)"
        r"|v8::internal::(NewArray|AllocWithRetry|AlignedAllocWithRetry|Malloced::operator new)(<.*>)?"
    ),
}

# Names of Rust functions. A crate's own implementation of a trait of the standard library (`<app::T as core::...>`)
# is no wrapper.
RUST = {
    "the standard library": r"<?&?(mut )?(alloc|core|std|hashbrown)::.*|__(rust|rdl|rg)_\w+",
    "slices, arrays and tuples": r"<(\[|\(|dyn |str\b|u8\b).* as (alloc|core|std)::.*",
    "small vectors and byte buffers": r"<?(smallvec|arrayvec|bytes|bumpalo|indexmap|allocator_api2)::.*",
}

# The two manglings of Rust: v0 (_R), and the older one, which looks like C++ but ends with a hash.
_RUST = regex(r"^_R|^_ZN.*17h[0-9a-f]{16}E")


_TABLES = {"C": C, "C++": CPP, "Rust": RUST}


@cache
def _pattern(language: str) -> re.Pattern[str]:
    """Return a pattern of all wrappers. It takes 10 ms to compile, and most cores have no records."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in _TABLES[language].values()))


def is_wrapper(symbol: str, name: str) -> bool:
    """Return whether the function allocates on behalf of its caller.

    `symbol` is the name in the symbol table, and `name` the same name demangled.
    """
    return _pattern(_language(symbol)).fullmatch(function_of_clone(name)) is not None


def _language(symbol: str) -> str:
    if _RUST.match(symbol):
        return "Rust"
    return "C++" if symbol.startswith("_Z") else "C"
