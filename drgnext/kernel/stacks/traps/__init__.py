"""Trap frames: the registers that an exception, an interrupt or a system call saved on a stack.

There is one module for each machine. Each implements :class:`Machine`. They read only a :class:`Memory`, so tests can
give them stacks made by hand as well as dumps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory


class StackRange(NamedTuple):
    """A stack: ``[start, end)``, which grows down from ``end``. ``name`` is "task", "irq", "NMI", "DF", ..."""

    name: str
    start: int
    end: int

    def __contains__(self, address: object) -> bool:
        """Return whether the address lies on the stack."""
        return isinstance(address, int) and self.start <= address < self.end


@dataclass(frozen=True)
class TrapFrame:
    """Saved registers.

    ``pc`` is the instruction that trapped, or the next one to run. It is never a return address. ``entry`` is an
    address in the entry code that saved the registers (the return address of its call to the handler), or None. Its
    symbol tells what kind of trap it was. ``partial`` means that only the registers that the processor itself pushes
    are there.
    """

    address: int
    pc: int
    sp: int
    user: bool
    registers: Mapping[str, int]
    entry: Optional[int] = None
    partial: bool = False


class Machine(Protocol):
    """The differences between architectures."""

    @property
    def name(self) -> str:
        """Return the name, as in dmods.target.Arch.name."""

    @property
    def size(self) -> int:
        """Return the size of the saved registers in bytes."""

    @property
    def registers(self) -> Sequence[str]:
        """Return the names of the registers in the order in which they are shown."""

    @property
    def code_step(self) -> int:
        """Return what to subtract from a return address to get inside the call."""

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """Return the registers saved at ``address``, whatever they are. Return None if the dump lacks them."""

    def scan(self, memory: Memory, stack: StackRange, code: CodeMap) -> list[TrapFrame]:
        """Return every place on the stack that can only be saved registers, the lowest address (innermost) first."""


class CodeMap(Protocol):
    """Knowledge of the kernel's code."""

    def is_code(self, address: int) -> bool:
        """Return whether kernel or module text is at the address."""

    def is_entry(self, address: int) -> bool:
        """Return whether the address is in the entry code, which saves registers and calls handlers."""

    def after_call(self, address: int) -> bool:
        """Return whether a call ends at the address, as it does at a return address."""
