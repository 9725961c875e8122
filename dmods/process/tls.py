"""The thread-local memory of a thread, found through libc's dynamic thread vector (dtv)."""

from __future__ import annotations

from dmods.base.words import Words
from dmods.process import musl_threads
from dmods.target import Arch

_MAX_MODULES = 1 << 12  # entries of a dtv. Each is a module with thread-local variables.


def dtv_blocks(words: Words, arch: Arch, thread_pointer: int) -> list[int]:
    """Return where the TLS blocks of the thread's modules begin.

    The TCB points to the dtv: in its second word on x86 (``tcbhead_t.dtv``), in its first on AArch64. Entries are pairs
    of words. The pair before the first one holds the number of entries (glibc elf/dl-tls.c). A block that is not
    allocated yet is 0 or -1 (TLS_DTV_UNALLOCATED) there: it is left out. musl's is another one.
    """
    if musl_threads.pthread_at(words, arch, thread_pointer) is not None:
        return musl_threads.dtv_blocks(words, arch, thread_pointer, _MAX_MODULES)
    dtv = words.at(thread_pointer + (words.size if arch.tcb_is_pthread else 0))
    count = words.at(dtv - 2 * words.size) if dtv else None
    if not dtv or count is None or not 0 < count <= _MAX_MODULES:
        return []
    entries = words.many(dtv + 2 * words.size, 2 * count) or ()
    return [value for value in entries[::2] if value not in (0, words.mask)]
