"""Tell whether two cores are of one process. Only then does an address mean the same in both."""

from __future__ import annotations

from typing import Optional

from dmods.modules.auxv import AT_RANDOM
from dmods.target import Target

_RANDOM_BYTES = 16  # fs/binfmt_elf.c, create_elf_tables: k_rand_bytes


def difference(base: Target, last: Target) -> Optional[str]:
    """Return why the addresses of the two cores cannot be compared, or None where they can.

    The kernel gives each program that it starts 16 random bytes. A forked child has its parent's, and its addresses.
    """
    if base.arch.name != last.arch.name:
        return f"one is of {base.arch.name}, the other of {last.arch.name}"
    ours, theirs = _random(last), _random(base)
    if ours is not None and theirs is not None:
        return None if ours == theirs else "the random bytes that the kernel gave the process differ (AT_RANDOM)"
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


def _modules(target: Target) -> dict[str, tuple[int, Optional[str]]]:
    return {module.path: (module.bias, module.build_id) for module in target.modules()}
