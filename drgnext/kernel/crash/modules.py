"""The loaded modules, and why the kernel is tainted."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgn import Program


_MOST = 10_000

# Documentation/admin-guide/tainted-kernels.rst
_TAINTS = {
    "P": "proprietary module",
    "F": "module loaded by force",
    "S": "processor or system out of specification",
    "R": "module unloaded by force",
    "M": "machine check",
    "B": "bad page",
    "U": "set by the user",
    "D": "died before (oops)",
    "A": "ACPI table overridden",
    "W": "warned before",
    "C": "staging driver",
    "I": "firmware bug worked around",
    "O": "out-of-tree module",
    "E": "unsigned module",
    "L": "soft lockup before",
    "K": "live-patched",
    "X": "defined by the distribution",
    "T": "randomized structures",
    "N": "test",
    "J": "fwctl's mutating debug commands were used",
}


class Loaded(NamedTuple):
    """A loaded module: its name, lowest address, total size in bytes, and the letters of its taints."""

    name: str
    address: int
    size: int
    taints: str


def loaded(prog: Program) -> tuple[list[Loaded], list[str]]:
    """Return the modules in the kernel's order (the last loaded first), and notes."""
    from drgn import FaultError
    from drgn.helpers.linux.module import for_each_module, module_address_regions, module_taints

    found: list[Loaded] = []
    seen: set[int] = set()
    try:
        for module in islice(for_each_module(prog), _MOST):
            if int(module) in seen:
                return found, ["the list of modules leads back to itself: some modules may be missing"]
            seen.add(int(module))
            regions = [(int(start), int(size)) for start, size in module_address_regions(module) if size]
            name = module.name.string_().decode(errors="replace")
            start = min((start for start, _size in regions), default=0)
            found.append(Loaded(name, start, sum(size for _start, size in regions), module_taints(module)))
    except (FaultError, LookupError, ValueError, AttributeError) as error:
        return found, [f"the list of modules is damaged ({error}): some modules may be missing"]
    return found, []


def summary(found: list[Loaded]) -> str:
    """Return the number of modules, and the names of those that taint the kernel."""
    tainting = ", ".join(f"{one.name} ({one.taints})" for one in found if one.taints)
    return f"{len(found)} loaded" + (f"; tainting: {tainting}" if tainting else "")


def tainted(prog: Program) -> Optional[str]:
    """Return the taint letters as an oops shows them, with their meaning. Return None if they cannot be read."""
    from drgn import FaultError
    from drgn.helpers.linux.panic import tainted as letters

    try:
        found = [letter for letter in letters(prog) if letter.isalpha() and letter != "G"]
    except (FaultError, LookupError, ValueError):
        return None
    if not found:
        return "no"
    return f"{''.join(found)} ({', '.join(_TAINTS.get(letter, letter) for letter in found)})"


def release(prog: Program) -> Optional[str]:
    """Return `uname -r` and `uname -v`, or None if they cannot be read."""
    from drgn import FaultError

    try:
        name = prog["init_uts_ns"].name
        return f"{name.release.string_().decode(errors='replace')} {name.version.string_().decode(errors='replace')}"
    except (FaultError, LookupError):
        return None
