"""Source lines, with any answer of drgn."""

from __future__ import annotations

from typing import Any, cast

import drgn
import pytest

from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import CodeNames


class Program:
    """A drgn program with the parts that a source line needs."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def source_location(self, address: int) -> Any:
        raise self._error


class Code:
    """A kernel's code, none of which was made at run time."""

    def made_at(self, address: int) -> None:
        return None


def places(error: Exception) -> CodeNames:
    return CodeNames(Program(error), cast(KernelCode, Code()), 1)


@pytest.mark.parametrize(
    "error",
    [
        drgn.BadDataError("a line table without an end"),
        drgn.FaultError("not in the dump", 0x1000),
        drgn.MissingDebugInfoError("vmlinux"),
        drgn.OutOfBoundsError("beyond .debug_line"),
        LookupError("no such line"),
        OverflowError("no address"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_debugging_information_of_no_use_gives_no_line(error: Exception) -> None:
    assert places(error).lines(0x1000) == []


@pytest.mark.parametrize(
    "error", [AttributeError("ours"), RuntimeError("ours"), drgn.ObjectAbsentError("ours"), KeyboardInterrupt()]
)
def test_defects_are_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)):
        places(error).lines(0x1000)
