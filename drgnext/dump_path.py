"""The path of the dump that drgn has open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.cli.open_files import open_with_raw_name
from dmods.errors import UserError
from dmods.modules.elf import ET_CORE

if TYPE_CHECKING:
    from drgn import Program


def dump_path(prog: Program) -> Optional[str]:
    """Return the path, or None where there is no dump. Raises UserError where drgn cannot say it.

    drgn takes the bytes of the path for UTF-8.
    """
    path: Optional[str]
    try:
        path = prog.core_dump_path
    except UnicodeDecodeError:
        path = open_with_raw_name(ET_CORE)
        if path is None:
            raise UserError("drgn cannot say the path of the dump: it is not UTF-8", "make a link to it") from None
    return path
