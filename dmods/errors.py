"""The typed family of errors.

What is wrong with the *dump* is a result (a row or a note), so most of these are caught close to where they
are raised. What the *user* must mend is a :class:`UserError`: one line saying what, one saying how. Any other
exception that reaches a front end is a defect of dmods and keeps its traceback.
"""

from __future__ import annotations

ASK_WHATIS = "`whatis` says what it is (in gdb: `mdb whatis`)"  # the second line of many a UsageError


class DmodsError(Exception):
    """Base of every error that dmods raises on purpose."""


class FaultError(DmodsError):
    """``size`` bytes at ``address`` are not (all) in the dump."""

    def __init__(self, address: int, size: int = 1) -> None:
        super().__init__(f"cannot read {size} bytes at {address:#x}: not in the dump")
        self.address = address
        self.size = size


class CorruptError(DmodsError):
    """A structure in the dump contradicts itself."""


class TruncatedError(DmodsError):
    """The dump ends before what its own headers promise."""


class MissingDebugInfoError(DmodsError):
    """A type or symbol is needed that no debug information describes."""


class UserError(DmodsError):
    """The user can mend this. ``what`` and ``how`` are one line each; both are shown, without a traceback."""

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what}\n{how}")
        self.what = what
        self.how = how


class UsageError(UserError):
    """The command line itself is wrong (exit status 2 in the standalone form)."""


class KernelDumpError(UserError):
    """What was given as a process's core is a kernel's."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is a kernel dump, and this is for processes",
            f"for kernels: `dmods memstat {path}`, panicinfo, stacks, ...; in drgn: drgn -c {path} NAME",
        )
