"""The errors that dmods raises.

A problem of the *dump* is a result: it becomes a row or a note. So most of these errors are caught close to where they
are raised. A problem that the *user* can solve is a :class:`UserError`: one line says what is wrong, one line says
what to do. Any other exception that reaches a front end is a defect of dmods, and keeps its traceback.
"""

from __future__ import annotations

ASK_WHATIS = "`whatis` says what it is (in gdb: `mdb whatis`)"  # the second line of several UsageErrors


class DmodsError(Exception):
    """The base class of all errors that dmods raises on purpose."""


class FaultError(DmodsError):
    """Some of ``size`` bytes at ``address`` are not in the dump."""

    def __init__(self, address: int, size: int = 1) -> None:
        super().__init__(f"cannot read {size} bytes at {address:#x}: not in the dump")
        self.address = address
        self.size = size


class CorruptError(DmodsError):
    """A structure in the dump contradicts itself."""


class TruncatedError(DmodsError):
    """The dump is shorter than its own headers say."""


class MissingDebugInfoError(DmodsError):
    """No debug information describes a type or symbol that is needed."""


class UserError(DmodsError):
    """A problem that the user can solve. ``what`` and ``how`` are one line each. There is no traceback."""

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what}\n{how}")
        self.what = what
        self.how = how
        self.in_json = False  # the output already has this error: the JSON object had begun


class UsageError(UserError):
    """The command line is wrong. The exit status in the shell is 2."""


class OutputError(DmodsError):
    """The output cannot be written: for example, the disk is full. There is no traceback, and the exit status is 1."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write the output: {reason}")


class KernelDumpError(UserError):
    """The dump of a kernel was given to a command for processes."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is a kernel dump, and this command is for processes",
            f"type `dmods memstat {path}` (or panicinfo, stacks, ...); in drgn: drgn -c {path} NAME",
        )
