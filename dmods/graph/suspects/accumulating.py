"""Decide which blocks accumulate: a few large ones do not, and a type of the language says nothing."""

from __future__ import annotations

import builtins
from math import ceil

from dmods.graph.owners.heap_owners import Owners

DOWN = 0.7  # of what something holds: so much is most of it
FEW = 16  # blocks
#: CPython's own types ("str", "dict"), by the names that its objects have.
_BUILT_IN = frozenset(name for name, value in vars(builtins).items() if isinstance(value, type))
_NOT_NAMED = frozenset(
    {"NoneType", "builtin_function_or_method", "cell", "code", "frame", "function", "method", "module"}
)
_ARRAY = "[]"


def is_few(owners: Owners, scope: tuple[str, int], size: int) -> bool:
    """Return whether at most FEW of the blocks in the scope have most of ``size`` bytes, which all of them have."""
    needed, count = ceil(DOWN * size), 0
    for kind in sorted(owners.kinds(scope, "size"), key=lambda kind: -(kind.size or 0)):
        if kind.size:
            count += min(kind.count, ceil(needed / kind.size))
            needed -= kind.bytes
        if needed <= 0 or count > FEW:
            break
    return needed <= 0 and count <= FEW


def is_of_language(name: str) -> bool:
    """Return whether a type is the language's own: an array, which is mostly a text, or a built-in type of CPython."""
    return name.endswith(_ARRAY) or name.partition(" ")[0] in _BUILT_IN | _NOT_NAMED
