"""Check whether programs started from here leave a core when they die: core(5)."""

from __future__ import annotations

import resource


def leaves_no_core(pattern: str) -> bool:
    """Return whether a program started from here leaves no core when it dies. `pattern` is core_pattern.

    A pattern that begins with "|" names a program that receives cores whatever the limit is (core(5)).
    """
    return resource.getrlimit(resource.RLIMIT_CORE)[0] == 0 and not pattern.startswith("|")
