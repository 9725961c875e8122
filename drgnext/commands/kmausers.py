"""Who holds slab memory, by mdb's name for a kernel."""

from __future__ import annotations

from dmods.base.dataclass import replace
from drgnext.commands import umausers

COMMAND = replace(
    umausers.COMMAND,
    name="kmausers",
    examples=(("kmausers --top 3", "the three biggest"), ("kmausers --by cache --all", "every cache")),
    description=umausers.COMMAND.description.replace("`kmausers` is the same", "`umausers` is the same"),
)
