"""Parts that the commands for CPython share."""

from __future__ import annotations

from dmods.errors import UserError
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.runtime import Python
from dmods.target import Target


def python_of(target: Target) -> Python:
    """Return the CPython of the process. Raises UserError where the process has no CPython that dmods reads."""
    found = find_python(target)
    if found.python is None:
        raise UserError(
            found.refusal or "the process has no CPython",
            "this command reads CPython 3.9 to 3.15; --sysroot names the root that has the interpreter's file",
        )
    return found.python
