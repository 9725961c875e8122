"""Expressions of drgn's prompt as arguments of commands: `%whatis t`, `%findstack prog["init_task"]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from drgn import Program

_NAME = re.compile(r"[^\W\d]\w*")


def value_of_variable(text: str, prog: Program, variables: Mapping[str, Any]) -> Optional[int]:
    """Return what an expression that begins with a variable of the prompt means, or None if it does not.

    Such a variable comes before a symbol of its name, and before a number that it looks like (`b`). Functions and
    modules that drgn has at its prompt are no such variables.
    """
    from drgn import Object, Thread

    name = _NAME.match(text)
    if name is None or not isinstance(variables.get(name[0]), (int, Object, Thread)):
        return None
    return value_of(text, prog, variables)


def value_of(text: str, prog: Program, variables: Mapping[str, Any]) -> Optional[int]:
    """Return the number or address that a Python expression of the user's means, or None.

    A structure means its address, a pointer and a number their value, and a thread of a kernel its task.
    """
    import drgn

    try:
        value = eval(text, {"prog": prog, **variables})  # the user types Python at drgn's prompt anyway
        if isinstance(value, drgn.Thread):
            value = value.object
        if isinstance(value, drgn.Object):
            value = _of_object(value)
        return value if isinstance(value, int) else None
    except Exception:  # noqa: BLE001 (the user's expression may raise anything)
        return None


def _of_object(value: Any) -> Any:
    from drgn import TypeKind

    type_ = value.type_
    while type_.kind == TypeKind.TYPEDEF:
        type_ = type_.type
    kinds = (TypeKind.STRUCT, TypeKind.UNION, TypeKind.CLASS, TypeKind.ARRAY, TypeKind.FUNCTION)
    return value.address_ if type_.kind in kinds else value.value_()
