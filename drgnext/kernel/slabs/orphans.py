"""Objects that the kernel itself drops on purpose: nothing points to them, and that is no defect.

Each pattern names a type by what an object of it holds. A pattern never goes by a count.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.own_types.carried import stands_for_vmlinux

if TYPE_CHECKING:
    from drgn import Program

_WORD = (1 << 64) - 1
_MOST_IMAGE = 1 << 30
_LONGEST_NAME = 256


class Pattern(NamedTuple):
    """A kind of object: what it is, why nothing holds it, and what words of it must hold.

    ``words`` are (offset, lowest, highest). ``pointer`` is the offset of a word that points to a variable of
    ``variable``'s type, which the debug information must confirm; None where the words are enough.
    """

    what: str
    why: str
    size: int
    words: list[tuple[int, int, int]]
    pointer: Optional[int] = None
    variable: str = ""


_SYSCTL = "a sysctl table that init registers for ever: its header is dropped on purpose (fs/proc/proc_sysctl.c)"


def orphan_patterns(prog: Program) -> list[Pattern]:
    """Return the patterns of this kernel. What it does not have is left out."""
    found: list[Pattern] = []
    with suppress(LookupError, AttributeError, TypeError):
        found += _sysctl_headers(prog)
    return found


def _sysctl_headers(prog: Program) -> list[Pattern]:
    """Return the patterns of ``struct ctl_table_header`` whose table is part of the kernel's image.

    init code registers tables and drops the header (kmemleak_not_leak() in fs/proc/proc_sysctl.c). The header of a
    table with subdirectories (up to 6.4) has no table of its own, only the argument.
    """
    from drgn import offsetof

    header = prog.type("struct ctl_table_header")
    size = header.size or 0
    image = image_of(prog)
    root = prog["sysctl_table_root"]
    kept = int(root.default_set.address_of_().value_())
    at_root, at_set = int(offsetof(header, "root")), int(offsetof(header, "set"))
    table = int(offsetof(header, "ctl_table"))
    first = Pattern(
        "ctl_table_header",
        _SYSCTL,
        size,
        [(at_root, root.address_ or 0, root.address_ or 0), (at_set, kept, kept), (table, *image)],
    )
    argument = int(offsetof(header, "ctl_table_arg"))
    second = Pattern(
        "ctl_table_header of a table with subdirectories",
        _SYSCTL,
        size,
        [(table, 0, 0), (at_root, 0, 0), (at_set, 0, 0), (argument, *image)],
        argument,
        "struct ctl_table",
    )
    return [first, second]


def image_of(prog: Program) -> tuple[int, int]:
    """Return the first and the last address of the kernel's image.

    drgn does not move some symbols at the very end of the image by KASLR's offset (arm64's _end).
    """
    first, last, bias = int(prog.symbol("_text").address), 0, 0
    with suppress(LookupError, AttributeError):
        module = prog.main_module()
        bias = int(module.loaded_file_bias or module.debug_file_bias or 0)
    for name in ("_end", "__bss_stop", "_edata"):
        with suppress(LookupError):
            address = int(prog.symbol(name).address)
            for moved in (address, address + bias & _WORD):
                if first < moved < first + _MOST_IMAGE:
                    last = max(last, moved - 1)
    if not last:
        raise LookupError("the end of the kernel's image")
    return first, last


def is_variable_of(prog: Program, address: int, kind: str) -> bool:
    """Return whether a variable of that type, or an array of it, begins at the address."""
    try:
        symbol = prog.symbol(address)
    except LookupError:
        return False
    try:
        variable = prog.variable(symbol.name)
    except (LookupError, ValueError):
        # BTF does not say of what types variables are.
        return (
            stands_for_vmlinux(prog) and symbol.address == address & _WORD and _begins_with_a_name(prog, address, kind)
        )
    type_name = variable.type_.type_name()
    return variable.address_ == address & _WORD and type_name.removeprefix("const ").startswith(kind + " [")


def _begins_with_a_name(prog: Program, address: int, kind: str) -> bool:
    """Return whether the first member of the structure at the address is a name that lies in the kernel's image."""
    from drgn import FaultError, Object

    first, last = image_of(prog)
    try:
        entry = Object(prog, kind, address=address)
        member = next(iter(entry.type_.members or ())).name
        place = int(entry.member_(member)) if member else 0
        text = prog.read_c_string(place, max_size=_LONGEST_NAME) if first <= place <= last else b""
    except (FaultError, LookupError, StopIteration, TypeError, ValueError):
        return False
    return text.isascii() and text.decode("ascii", "replace").isprintable() and len(text) > 0
