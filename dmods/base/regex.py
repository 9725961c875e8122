"""Regular expressions of modules, compiled when they are first used.

Compiling one takes 0.1 ms or more, and the modules that a command imports have about a hundred. A run uses few of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["regex"]

if TYPE_CHECKING:
    from re import compile as regex  # checkers see a re.Pattern
else:

    def regex(text: Any, flags: int = 0) -> Any:
        """Return an object with the attributes of ``re.compile(text, flags)``, which is called when it is used."""
        return _Pattern(text, flags)


class _Pattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled expression, and keep it: this method is called once for each name."""
        if name.startswith("__"):  # copy and pickle look for these before there is a _given
            raise AttributeError(name)
        value = getattr(re.compile(*self._given), name)  # re itself keeps what it compiled
        setattr(self, name, value)
        return value
