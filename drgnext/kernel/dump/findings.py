"""Findings about a kernel's dump: where its symbols and types come from, and what is lost because of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmods.machine.doctor import Remark
from drgnext.kernel.dump import debuginfo
from drgnext.kernel.dump.own_types import carried

if TYPE_CHECKING:
    from drgn import Program

    from drgnext.kernel.dump.target import Kernel

_WORKS_BARE = "panicinfo shows the log and VMCOREINFO; no other command works"


def kernel_findings(kernel: Kernel) -> Iterator[Remark]:
    """Yield findings about the dump, its kernel, its symbols and types, its modules, and its memory."""
    prog = kernel.prog
    release = debuginfo.release(prog) or "of unknown release"
    yield Remark("kernel", f"{kernel.path or 'the running kernel'}: {release}")
    yield from _sources(prog)
    for sentence in kernel.unused:
        yield Remark("file", sentence)
    if not debuginfo.missing(prog):
        yield from _modules(prog)
    known = {*debuginfo.short_note(prog), *kernel.unused}
    notes = [note for note in kernel.notes if note not in known]
    for note in notes:
        yield Remark("note", note)
    if not notes and kernel.path is not None:
        yield Remark("memory", "the file of the dump is whole")
    if kernel.lacking is not None and not debuginfo.missing(prog):
        yield Remark("memory", kernel.lacking.what, kernel.lacking.how)


def _sources(prog: Program) -> Iterator[Remark]:
    """Yield what serves symbols, what serves types, and what is lost."""
    advice = debuginfo.package(debuginfo.release(prog))
    found = carried.outcome(prog)
    if debuginfo.missing(prog):
        reason = found.reason or "there is no vmlinux"
        yield Remark("symbols", f"none: {reason}", f"{advice}; or -s VMLINUX; or --symbols System.map")
        yield Remark("types", "none: the symbols say where they are", "--btf FILE beside --symbols")
        yield Remark("lost", _WORKS_BARE)
    elif carried.stands_for_vmlinux(prog):
        yield Remark("symbols", found.symbols or "those that the kernel carries in the dump (kallsyms)")
        yield Remark("types", found.types or "those that the kernel carries in the dump (BTF)")
        yield Remark("lost", "source lines and inlined functions; macros, and types of variables at the prompt", advice)
    else:
        path = prog.main_module().debug_file_path
        yield Remark("symbols", f"vmlinux: {path}")
        yield Remark("types", f"vmlinux (DWARF): {path}")


def _modules(prog: Program) -> Iterator[Remark]:
    """Yield which modules have types of their own."""
    import drgn

    modules = [module for module in prog.modules() if isinstance(module, drgn.RelocatableModule)]
    own = carried.outcome(prog)
    carried_types = {module.name for module in own.modules if module.btf is not None}
    if not carried.stands_for_vmlinux(prog):
        carried_types = set()
    full = [one for one in modules if not one.wants_debug_file() and not carried.is_ours(one)]
    lacking = sorted(one.name for one in modules if one not in full and one.name not in carried_types)
    typed = len(modules) - len(full) - len(lacking)
    parts = [(len(full), "with debugging information"), (typed, "with types that they carry (BTF)")]
    parts.append((len(lacking), f"without types ({debuginfo.few(lacking)})"))
    said = ", ".join(f"{count} {what}" for count, what in parts if count)
    help_ = "-s MODULE.ko, with debug information" if lacking else ""
    yield Remark("modules", f"{len(modules)} loaded: {said}" if modules else "none are loaded", help_)
