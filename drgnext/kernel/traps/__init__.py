"""Trap frames: where the processor's registers lie on a stack when an exception, an interrupt or a system call came.

One module for each machine, all with the face of :class:`Machine`. What they read is a :class:`Memory` alone, so they
are tested on stacks made by hand as well as on dumps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional, Protocol

from drgnext.kernel.words import Memory


class StackRange(NamedTuple):
    """A stack: ``[start, end)``, growing down from ``end``. ``name``: "task", "irq", "NMI", "DF", ..."""

    name: str
    start: int
    end: int

    def __contains__(self, address: object) -> bool:
        return isinstance(address, int) and self.start <= address < self.end


@dataclass(frozen=True)
class TrapFrame:
    """Saved registers. ``pc`` is the instruction that trapped, or that was to run next: never a return address.

    ``entry`` is an address in the entry code that saved them (the return address of its call to the handler), where it
    is known: its symbol says what kind of trap it was. ``partial``: only what the processor itself pushed is there yet.
    """

    address: int
    pc: int
    sp: int
    user: bool
    registers: Mapping[str, int]
    entry: Optional[int] = None
    partial: bool = False


class Machine(Protocol):
    """What differs from one architecture to the next."""

    @property
    def name(self) -> str:
        """dmods.target.Arch.name."""

    @property
    def size(self) -> int:
        """Of the saved registers, in bytes."""

    @property
    def registers(self) -> Sequence[str]:
        """In the order in which they are shown."""

    @property
    def code_step(self) -> int:
        """What to take off a return address to be inside the call."""

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """The registers saved at ``address``, whatever they are. None where the dump does not hold them."""

    def scan(self, memory: Memory, stack: StackRange, code: CodeMap) -> list[TrapFrame]:
        """Every place of the stack that can only be saved registers, lowest address (innermost) first."""


class CodeMap(Protocol):
    """What is known of the kernel's code."""

    def is_code(self, address: int) -> bool:
        """Whether kernel or module text is there."""

    def is_entry(self, address: int) -> bool:
        """Whether it lies in the entry code, which saves registers and calls handlers."""

    def after_call(self, address: int) -> bool:
        """Whether a call ends there: what a return address must look like."""
