"""Alternate signal stacks: blocks that only the kernel points to.

``sigaltstack`` tells the kernel where the alternate stack of a thread is. Many programs keep no pointer to it (Erlang's
schedulers allocate theirs with malloc). A core has its address only if the thread was handling a signal on it. So it
cannot be told from a leak. A note says that a group of leaks may be alternate stacks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods import _engine
from dmods.heap.leak_totals import Group, Leaks
from dmods.modules.auxv import AT_MINSIGSTKSZ
from dmods.target import Target

_SIZES = tuple(1 << bits for bits in range(13, 17))  # SIGSTKSZ was 8 KiB (bits/sigstack.h); others take up to 64
_SLACK = 32  # malloc gives at most this many bytes more than requested
_CALL = b"\0sigaltstack\0"


def signal_stack_groups(target: Target, leaks: Leaks) -> list[Group]:
    """Return the groups of leaks that may be alternate signal stacks.

    There are no more of them than threads, they keep nothing alive, and they have the size of such stacks. A module
    must call ``sigaltstack``.
    """
    threads = len(target.threads())
    sizes = _sizes(target)
    alike = [
        group
        for group in leaks.groups
        if group.count <= threads and not group.kept_count and any(0 <= group.size - size < _SLACK for size in sizes)
    ]
    return alike if alike and _called(target) else []


def signal_stack_notes(target: Target, leaks: Leaks) -> Iterator[str]:
    """Yield a note for each group of leaks that may be alternate signal stacks."""
    for group in signal_stack_groups(target, leaks):
        yield (
            f"{group.cache}: {group.count} may be alternate signal stacks (sigaltstack): only the kernel "
            "points to those (see docs/LIMITS.md)"
        )


def signal_stack_sizes(target: Target) -> set[int]:
    """Return the usual sizes of alternate signal stacks; none where no module makes such stacks."""
    return _sizes(target) if _called(target) else set()


def _sizes(target: Target) -> set[int]:
    """Return the usual sizes of alternate signal stacks.

    Since glibc 2.34 SIGSTKSZ is four times what the kernel says a signal needs (sysconf-sigstksz.h). That depends on
    the processor.
    """
    needed = target.auxv.get(AT_MINSIGSTKSZ, 0)
    return {*_SIZES, 4 * needed} if 0 < needed < _SIZES[-1] else set(_SIZES)


def _called(target: Target) -> bool:
    """Return whether a module other than libc names ``sigaltstack`` among its dynamic symbols. libc defines it."""
    files = {module.file for module in target.modules() if module.file is not None}
    naming = sum(_CALL in (_engine.elf_section(file, ".dynstr") or b"") for file in files)
    return naming > 1
