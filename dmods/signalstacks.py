"""Alternate signal stacks: blocks that only the kernel points to.

``sigaltstack`` tells the kernel where a thread's is, and many a program forgets it then (Erlang's schedulers take
theirs from malloc). The kernel writes it into no core, but for a thread that was handling a signal there: so such a
block cannot be told from a leak. What can be said is that a group of leaks looks like them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods import _engine
from dmods.heap import Leaks
from dmods.target import Target

_SIZES = tuple(1 << bits for bits in range(13, 17))  # SIGSTKSZ is 8 KiB (bits/sigstack.h); others take up to 64
_SLACK = 32  # bytes that malloc gives more than it was asked for
_CALL = b"\0sigaltstack\0"


def notes(target: Target, leaks: Leaks) -> Iterator[str]:
    """Of each size of leaks that are no more than there are threads, keep nothing alive, and are as large as such
    stacks are; where a module calls ``sigaltstack`` at all."""
    threads = len(target.threads())
    alike = [
        group
        for group in leaks.groups
        if group.count <= threads and not group.kept_count and any(0 <= group.size - size < _SLACK for size in _SIZES)
    ]
    if alike and _called(target):
        for group in alike:
            yield (
                f"{group.cache}: {group.count} may be alternate signal stacks (sigaltstack), of which the kernel alone "
                "knows: see docs/LIMITS.md"
            )


def _called(target: Target) -> bool:
    """Whether a module names the function in its dynamic symbols: those that call it, or libc, which has it."""
    files = {module.file for module in target.modules() if module.file is not None}
    naming = sum(_CALL in (_engine.elf_section(file, ".dynstr") or b"") for file in files)
    return naming > 1
