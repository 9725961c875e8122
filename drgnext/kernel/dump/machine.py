"""The architecture that a kernel ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from drgn import Architecture, Program


def architecture(prog: Program) -> Optional[Architecture]:
    """Return the architecture, or None where drgn cannot tell it from the dump."""
    return prog.platform.arch if prog.platform is not None else None
