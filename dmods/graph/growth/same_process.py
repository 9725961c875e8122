"""Tell whether two cores are of one process. Only then does an address mean the same in both."""

from __future__ import annotations

from typing import Optional

from dmods.modules.auxv import AT_BASE, AT_ENTRY, AT_EXECFN, AT_PHDR, AT_RANDOM, AT_SYSINFO_EHDR
from dmods.target import Target

_RANDOM_BYTES = 16  # fs/binfmt_elf.c, create_elf_tables: k_rand_bytes
_PLACES = (AT_PHDR, AT_BASE, AT_ENTRY, AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR)
#: Where address spaces end, and so where a stack begins that is not at a random place (TASK_SIZE, STACK_TOP).
_TOPS = (1 << 47, 1 << 48, 1 << 39, 1 << 32, 0xC0000000)
_NEAR = 4 << 20  # bytes below: arguments and environment


def difference(base: Target, last: Target) -> Optional[str]:
    """Return why the addresses of the two cores cannot be compared, or None where they can.

    The kernel gives each program that it starts 16 random bytes. A forked child has its parent's, and its addresses.
    A truncated core often lacks these bytes: they are on the stack. Then the auxiliary vector tells where the kernel
    put the program, its stack and the vdso: at random, and far more than 30 bits of chance.
    """
    if base.arch.name != last.arch.name:
        return f"one is of {base.arch.name}, the other of {last.arch.name}"
    ours, theirs = _random(last), _random(base)
    if ours is not None and theirs is not None:
        return None if ours == theirs else "the random bytes that the kernel gave the process differ (AT_RANDOM)"
    placed = _same_places(base, last)
    if placed is not None:
        return None if placed else "the program, its stack or the vdso are at other addresses"
    before, after = _modules(base), _modules(last)
    moved = [path for path in before.keys() & after.keys() if before[path] != after[path]]
    if moved:
        return f"{sorted(moved)[0]} is not the same file at the same address"
    if base.pid != last.pid or not before.keys() & after.keys():
        return "nothing shows that it is the same process (no AT_RANDOM, and the pids differ)"
    return None


def _random(target: Target) -> Optional[bytes]:
    address = target.auxv.get(AT_RANDOM)
    data = target.image().read(address, _RANDOM_BYTES) if address else b""
    return data if len(data) == _RANDOM_BYTES and any(data) else None


def _same_places(base: Target, last: Target) -> Optional[bool]:
    """Return whether the kernel put both programs at the same places; None where that proves nothing."""
    places = [key for key in _PLACES if base.auxv.get(key) and last.auxv.get(key)]
    if AT_RANDOM not in places or AT_SYSINFO_EHDR not in places:
        return None
    if any(base.auxv[key] != last.auxv[key] for key in places):
        return False
    # Without address space randomization all programs have the same places.
    return None if any(0 <= top - base.auxv[AT_RANDOM] < _NEAR for top in _TOPS) else True


def _modules(target: Target) -> dict[str, tuple[int, Optional[str]]]:
    return {module.path: (module.bias, module.build_id) for module in target.modules()}
