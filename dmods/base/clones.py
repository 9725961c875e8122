"""Names of the copies that compilers make of a function: gcc's and LLVM's."""

from __future__ import annotations

from dmods.base.regex import regex

_CLONE = regex(r"(\s*\[clone [^\]]*\]|\.(part|isra|constprop|cold|lto_priv|llvm|localalias)(\.[0-9A-Za-z]+)*)+$")


def function_of_clone(name: str) -> str:
    """Return the name of the function that was copied, or moved: "main" for "main.cold"."""
    return _CLONE.sub("", name)
