"""The target that drgn has open: a kernel or a process. It stays the same object while drgn has it open."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional, Union

from dmods.cli.frontend import check_files
from dmods.command import BARE_KERNEL, KERNEL, USERLAND, Command
from dmods.errors import UserError
from dmods.modules.localfiles import why_no_elf
from drgnext.dump_path import dump_path

if TYPE_CHECKING:
    from drgn import Program

    from drgnext.kernel.dump.target import Kernel
    from drgnext.target import CoreTarget

    Subject = Union[Kernel, CoreTarget]

# (drgn's program, the state of the dump and of the command line, the subject). drgn has one program at its prompt.
_known: list[tuple[Any, Hashable, Any]] = []


def is_kernel(prog: Program) -> bool:
    """Return whether drgn has a kernel open."""
    from drgn import ProgramFlags

    return bool(prog.flags & ProgramFlags.IS_LINUX_KERNEL)


def subject(prog: Program, command: Command, args: argparse.Namespace, variables: Mapping[str, Any]) -> Subject:
    """Return the kernel or the process that the command works on.

    Raises UserError where the command is for the other kind, or where drgn has nothing open.
    """
    _check_side(prog, command)
    if is_kernel(prog):
        found = kernel(prog, BARE_KERNEL in command.requires, args)
        found.variables = variables
        return found
    core = _core(prog)
    _check_symbols()
    check_files(args)
    status = os.stat(core)
    key = (core, status.st_ino, status.st_size, status.st_mtime_ns, args.exe, args.sysroot)
    target: CoreTarget = _kept(prog, key, lambda: _process(prog, core, args))
    target.variables = variables
    return target


def kernel(prog: Program, bare: bool = False, args: Optional[argparse.Namespace] = None) -> Kernel:
    """Return the kernel that drgn has open. With ``bare``, its debug information may be missing.

    ``args`` may name files with its symbols and types.
    """
    from drgnext.kernel.dump import given_files

    new = given_files.remember(getattr(args, "symbols", None) or (), getattr(args, "btf", None))
    if new:
        _known.clear()
    found: Kernel = _kept(prog, KERNEL, lambda: _kernel(prog, new))
    if found.lacking is not None:
        _known.clear()  # at the prompt, it may be loaded before the next command
        if not bare:
            raise found.lacking
    return found


@contextmanager
def faults(what: object, name: str) -> Iterator[None]:
    """Report what a kernel's dump lacks as a UserError, where no command made a note of it: a page, or a type."""
    from drgn import FaultError

    try:
        yield
    except LookupError as error:
        from drgnext.kernel.dump.debuginfo import package, release
        from drgnext.kernel.dump.own_types.carried import stands_for_vmlinux
        from drgnext.kernel.dump.target import Kernel

        if not (isinstance(what, Kernel) and stands_for_vmlinux(what.prog) and str(error).startswith("could not find")):
            raise
        raise UserError(
            f"{name} needs more than the symbols and types that the kernel carries: {error}",
            f"{package(release(what.prog))}; or name the file: -s VMLINUX",
        ) from None
    except FaultError as error:
        from drgnext.kernel.dump.target import Kernel, unreadable

        if not isinstance(what, Kernel):
            raise
        raise unreadable(what, f"what {name} needs", error) from None


def _kept(prog: Program, key: Hashable, make: Callable[[], Any]) -> Any:
    if not _known or _known[0][0] is not prog or _known[0][1] != key:
        _known[:] = [(prog, key, make())]
    return _known[0][2]


def _kernel(prog: Program, new_files: bool) -> Kernel:
    from drgnext.kernel.dump.target import Kernel

    return Kernel(prog, bare=True, new_files=new_files)


def _process(prog: Program, core: str, args: argparse.Namespace) -> CoreTarget:
    from drgnext.target import CoreTarget

    return CoreTarget(prog, core, args.exe, args.sysroot)


def _check_side(prog: Program, command: Command) -> None:
    what = dump_path(prog) or "what drgn has here"
    if is_kernel(prog) and USERLAND in command.requires:
        raise UserError(
            f"{command.name} is for processes, and {what} is a kernel",
            f"drgn -c core.PID {command.name}; `dmods -l` lists the commands",
        )
    if not is_kernel(prog) and KERNEL in command.requires:
        raise UserError(
            f"{command.name} is for kernels, and {what} is not a kernel",
            f"drgn -c vmcore {command.name}; for this: findleaks, whatis, panicinfo, ... (`dmods -l` lists them all)",
        )


def _check_symbols() -> None:
    """Raise UserError for a file of -s that drgn cannot read: it only warns, and -q hides that.

    For kernels it is a note: the dump itself has symbols and types.
    """
    from drgnext.kernel.dump.given_files import given_files

    for path in given_files():
        reason = why_no_elf(path)
        if reason is not None:
            raise UserError(f"-s {path}: {reason}", "give a file with symbols; the program goes after --exe")


def _core(prog: Program) -> str:
    from drgn import ProgramFlags

    core = dump_path(prog)
    if core is None and prog.flags & ProgramFlags.IS_LIVE:
        # drgn leaves the process running, and gives none of its registers.
        raise UserError(
            "drgn does not stop a process, and a heap that changes cannot be read",
            "take a core (gcore PID) and open that, or: gdb -x heapcmds.py -p PID",
        )
    if core is None:
        raise UserError("drgn has neither a core nor a kernel here", "open one: drgn -c DUMP NAME")
    if not os.path.exists(core):
        raise UserError(f"{core} is no longer there", "dmods reads the core itself: put it back, or open another")
    return core
