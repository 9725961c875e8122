"""An older dump of the same machine, opened beside the one that drgn has."""

from __future__ import annotations

import os

from dmods.base.raw_names import printable
from dmods.cli.drgn_starter import check_dump, lost_architecture, lost_vmcoreinfo
from dmods.corefile.unpacked import plain_path
from dmods.errors import UserError
from drgnext.kernel.dump.target import Kernel


def open_older(path: str) -> Kernel:
    """Return the kernel of another dump, with the symbols and types that the user gave for the first one.

    Raises UserError where it is no dump of a kernel, or no command could work on it.
    """
    import drgn

    plain, _said = plain_path(path)
    check_dump(plain)
    vmcoreinfo = lost_vmcoreinfo(plain)
    text = None
    if vmcoreinfo:
        with open(vmcoreinfo[1], "rb") as file:
            text = file.read()
    machine = lost_architecture(plain, ())
    platform = drgn.Platform(drgn.Architecture[machine[1].upper()]) if machine else None
    prog = drgn.Program(platform, vmcoreinfo=text)
    try:
        prog.set_core_dump(plain)
    except Exception as error:  # noqa: BLE001 (drgn raises no other type for what libelf and libkdumpfile say)
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{printable(path)} cannot be read: {why}", "give older dumps of the same machine") from None
    if not prog.flags & drgn.ProgramFlags.IS_LINUX_KERNEL:
        raise UserError(f"{printable(path)} is no dump of a kernel", "give older dumps of the same machine")
    kernel = Kernel(prog, new_files=True)
    kernel.path = os.fspath(plain)
    return kernel
