"""Saved registers on stacks made by hand.

SPARC V9 has published figures, arm64 follows the kernel's headers, and on x86-64 everything looks like pt_regs.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Optional

import pytest

from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.stacks.frames import Frame, Stack, StackWalker, Step
from drgnext.kernel.stacks.traps import StackRange, TrapFrame, sparc
from drgnext.kernel.stacks.traps.aarch64 import Aarch64
from drgnext.kernel.stacks.traps.sparc import Sparc
from drgnext.kernel.stacks.traps.x86_64 import X86_64
from drgnext.kernel.stacks.unwind_aarch64 import RecordUnwinder


class Memory:
    """Bytes at one address, with nothing around them."""

    def __init__(self, start: int, size: int, little_endian: bool = True) -> None:
        self.start = start
        self.data = bytearray(size)
        self.order = "<" if little_endian else ">"
        self.pages = Pages(self.give, little_endian=little_endian)

    def give(self, address: int, size: int) -> bytes:
        if not self.start <= address <= address + size <= self.start + len(self.data):
            raise OSError(f"nothing at {address:#x}")
        return bytes(self.data[address - self.start : address - self.start + size])

    def put(self, address: int, *words: int) -> None:
        struct.pack_into(f"{self.order}{len(words)}Q", self.data, address - self.start, *words)


class Code:
    """A CodeMap in which every function is 0x1000 bytes, and every address a multiple of 4 follows a call."""

    def __init__(self, start: int, end: int, entry: tuple[int, int] = (0, 0)) -> None:
        self.start, self.end, self.entry = start, end, entry

    def is_code(self, address: int) -> bool:
        return self.start <= address < self.end

    def is_entry(self, address: int) -> bool:
        return self.entry[0] <= address < self.entry[1]

    def after_call(self, address: int) -> bool:
        return self.is_code(address) and address % 4 == 0

    def function(self, address: int) -> Optional[tuple[str, int, str]]:
        return (f"f{address >> 12:x}", address & ~0xFFF, "") if self.is_code(address) else None


# A panic of Solaris on sun4u as published: hat_unload_callback+0x358 was shown, the load at +0x3f8 had trapped.
FRAME_SP = 0x2A10C548AB1
TRUE_PC = 0x1031360
HAT_UNLOAD_CALLBACK = TRUE_PC - 0x3F8
SHOWN = HAT_UNLOAD_CALLBACK + 0x358


def solaris_stack() -> tuple[Memory, StackRange]:
    stack = StackRange("task", 0x2A10C548000, 0x2A10C54C000)
    memory = Memory(stack.start, stack.end - stack.start, little_endian=False)
    outs = [0x300, 0x301, 0x302, 0x303, 0x304, 0x305, FRAME_SP, SHOWN]  # %o6, and %o7: the pc of the last call
    tstate = 0x4480001604 | 1 << 10  # with PSTATE.priv
    memory.put(0x2A10C549210, tstate, *range(1, 8), *outs, TRUE_PC, TRUE_PC + 4, 0)
    return memory, stack


def test_sparc_the_registers_are_below_the_frame_that_trapped() -> None:
    memory, _stack = solaris_stack()
    assert sparc.address_for(FRAME_SP) == 0x2A10C549210
    frame = Sparc().read(memory.pages, sparc.address_for(FRAME_SP))
    assert frame is not None
    assert (frame.pc, frame.sp, frame.user) == (TRUE_PC, FRAME_SP, False)
    assert (frame.pc - HAT_UNLOAD_CALLBACK, frame.registers["o7"] - HAT_UNLOAD_CALLBACK) == (0x3F8, 0x358)
    assert [frame.registers[f"g{n}"] for n in range(1, 8)] == list(range(1, 8))


def test_sparc_a_scan_finds_them_and_nothing_else() -> None:
    memory, stack = solaris_stack()
    code = Code(0x1000000, 0x2000000)
    random.seed(9)
    for address in range(stack.start, 0x2A10C549200, 8):  # pointers to code and to the stack, in any order
        memory.put(address, random.choice([TRUE_PC, SHOWN, FRAME_SP, 0x4480001604, 0]))
    found = Sparc().scan(memory.pages, stack, code)
    assert [frame.address for frame in found] == [0x2A10C549210]


def test_sparc_linux_has_its_own_order() -> None:
    memory, stack = solaris_stack()
    globals_and_outs = [0, *range(1, 8), 10, 11, 12, 13, 14, 15, FRAME_SP, SHOWN]
    memory.put(0x2A10C549210, *globals_and_outs, 1 << 10, TRUE_PC, TRUE_PC + 4, 0x57AC6C00 | 0x34)
    (frame,) = Sparc().scan(memory.pages, stack, Code(0x1000000, 0x2000000))
    assert (frame.pc, frame.registers["o7"], frame.registers["g7"]) == (TRUE_PC, SHOWN, 7)


def test_sparc_user_registers_are_told() -> None:
    memory, _stack = solaris_stack()
    memory.put(0x2A10C549210, 0x4480001604 & ~(1 << 10))
    frame = Sparc().read(memory.pages, 0x2A10C549210)
    assert frame is not None
    assert frame.user


ARM_STACK = StackRange("task", 0xFFFF800010000000, 0xFFFF800010004000)
ARM_CODE = Code(0xFFFF800008000000, 0xFFFF800009000000)
EL1H, EL0T = 0x60400005, 0x60000000


def arm_regs(machine: Aarch64, memory: Memory, address: int, *words: int) -> None:
    """Write what kernel_entry saves (arch/arm64/kernel/entry.S): x29, x30, sp, pc, pstate, and its frame record."""
    x29, _x30, _sp, pc, pstate = words
    memory.put(address, *range(29), *words)
    user = pstate == EL0T
    if machine.meta:
        memory.put(address + machine.stackframe, 0, 0, 1 if user else 2)
    else:
        memory.put(address + machine.stackframe, *((0, 0) if user else (x29, pc)))


def arm_oops(machine: Aarch64, framed: bool) -> tuple[Memory, Frame]:
    """Return a stack: panic <- el1h_64_sync <- trapped function <- caller <- el0t_64_sync <- user.

    The trapped function is a leaf, or has its own frame.
    """
    base = ARM_CODE.start
    memory = Memory(ARM_STACK.start, ARM_STACK.end - ARM_STACK.start)
    user_regs = ARM_STACK.end - machine.size
    arm_regs(machine, memory, user_regs, 0, 0x400200, 0xFFFFFFF0, 0x400123, EL0T)
    entry_record = user_regs + machine.stackframe
    caller_record = user_regs - 0x20
    memory.put(caller_record, entry_record, base + 0x5108)  # in el0t_64_sync
    own_record = user_regs - 0x60
    memory.put(own_record, caller_record, base + 0x3040)  # in the caller
    sp = own_record if framed else caller_record
    regs = sp - machine.size
    # A framed function that has called others: x30 is stale, and leads into the function itself.
    x29, x30 = (own_record, base + 0x2010) if framed else (caller_record, base + 0x3040)
    arm_regs(machine, memory, regs, x29, x30, sp, base + 0x2024, EL1H)
    handler_record = regs - 0x30
    memory.put(handler_record, regs + machine.stackframe, base + 0x4064)  # in el1h_64_sync
    registers = {"x29": handler_record, "x30": base + 0x4064, "pc": base + 0x1010, "sp": handler_record}
    return memory, Frame(base + 0x1010, handler_record, True, "cpu", registers)


def arm_walk(machine: Aarch64, memory: Memory, first: Frame) -> Stack:
    unwinder = RecordUnwinder(memory.pages, ARM_CODE, machine, ARM_CODE.function)
    return StackWalker(memory.pages, machine, ARM_CODE, unwinder, []).walk(first, ARM_STACK)


ARM_KERNELS = [Aarch64(336, 304, False), Aarch64(344 + 8, 304, True)]  # up to 6.12, and since 6.13


@pytest.mark.parametrize("machine", ARM_KERNELS, ids=["records", "meta"])
@pytest.mark.parametrize("framed", [False, True], ids=["leaf", "framed"])
def test_arm64_the_trapped_pc_is_exact_and_its_caller_is_found(machine: Aarch64, framed: bool) -> None:
    memory, first = arm_oops(machine, framed)
    stack = arm_walk(machine, memory, first)
    base = ARM_CODE.start
    expected = [(base + 0x1010, True), (base + 0x4064, False), (base + 0x2024, True), (base + 0x3040, False)]
    assert [(frame.pc, frame.exact) for frame in stack.frames] == [*expected, (base + 0x5108, False)]
    assert stack.end == "user"
    assert stack.user is not None
    assert (stack.user.pc, stack.user.entry) == (0x400123, base + 0x5108)
    assert stack.frames[2].trap is not None
    assert stack.frames[2].trap.entry == base + 0x4064


@pytest.mark.parametrize("machine", ARM_KERNELS, ids=["records", "meta"])
def test_arm64_a_scan_finds_both(machine: Aarch64) -> None:
    memory, _first = arm_oops(machine, True)
    found = machine.scan(memory.pages, ARM_STACK, ARM_CODE)
    assert [(frame.pc, frame.user) for frame in found] == [(ARM_CODE.start + 0x2024, False), (0x400123, True)]


def test_arm64_a_jump_to_null_came_from_x30() -> None:
    machine = ARM_KERNELS[0]
    memory, first = arm_oops(machine, False)
    regs = next(frame.address for frame in machine.scan(memory.pages, ARM_STACK, ARM_CODE))
    memory.put(regs + 256, 0)
    memory.put(regs + machine.stackframe + 8, 0)
    memory.pages = Pages(memory.give)
    stack = arm_walk(machine, memory, first)
    assert [(frame.pc, frame.found) for frame in stack.frames][2:4] == [
        (0, "trap"),
        (ARM_CODE.start + 0x3040, "bad jump"),
    ]


def test_arm64_signed_return_addresses() -> None:
    machine = ARM_KERNELS[0]
    memory, first = arm_oops(machine, True)
    at = memory.data.find(struct.pack("<Q", ARM_CODE.start + 0x3040))
    signed = (ARM_CODE.start + 0x3040) & ~(0x7F << 48) & ~(0xFF << 56) | 0x2B << 48 | 0x91 << 56 | 1 << 55
    struct.pack_into("<Q", memory.data, at, signed)
    assert ARM_CODE.start + 0x3040 in [frame.pc for frame in arm_walk(machine, memory, first).frames]


def test_arm64_a_cycle_of_records_ends() -> None:
    machine = ARM_KERNELS[0]
    memory, first = arm_oops(machine, True)
    record = first.registers["x29"]
    memory.put(record - 0x40, record, ARM_CODE.start + 0x7004)
    memory.put(record, record - 0x40, ARM_CODE.start + 0x6004)
    stack = arm_walk(machine, memory, first)
    assert len(stack.frames) < 10


X86_STACK = StackRange("task", 0xFFFFC90000010000, 0xFFFFC90000014000)
X86_CODE = Code(0xFFFFFFFF81000000, 0xFFFFFFFF82000000, (0xFFFFFFFF81E00000, 0xFFFFFFFF81F00000))


def x86_regs(pc: int, sp: int, cs: int = 0x10, ss: int = 0x18, flags: int = 0x246) -> tuple[int, ...]:
    return (*range(15), 2**64 - 1, pc, cs, flags, sp, ss)


ENTRY = 0xFFFFFFFF81E00C00  # in the entry code


def unchanged(words: list[int]) -> None:
    pass


def x86_scan(change: Callable[[list[int]], None] = unchanged) -> list[int]:
    """Return the pcs that are found when a stack holds one pt_regs that is right except for the change."""
    memory = Memory(X86_STACK.start, X86_STACK.end - X86_STACK.start)
    at = X86_STACK.start + 0x3008  # the processor aligns its part to 16 bytes
    words = [ENTRY, *x86_regs(0xFFFFFFFF81234567, at + 168)]
    change(words)
    memory.put(at - 8, *words)
    return [frame.pc for frame in X86_64().scan(memory.pages, X86_STACK, X86_CODE)]


def test_x86_a_scan_finds_pt_regs() -> None:
    assert x86_scan() == [0xFFFFFFFF81234567]


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 0xFFFFFFFF81000010),  # the word below is no return address into entry code
        (0, 0xFFFFFFFF81E00C03),  # the word below does not follow a call
        (18, 0x18),  # cs
        (19, 0x244),  # eflags without bit 1
        (19, 0x100000246),  # eflags with bits that do not exist
        (20, X86_STACK.start + 0x100),  # sp below where it lies
        (20, 0x1234),  # sp of user space
        (21, 0x2B),  # ss of user space
    ],
)
def test_x86_what_does_not_fit_is_none(index: int, value: int) -> None:
    assert x86_scan(lambda words: words.__setitem__(index, value)) == []


def test_x86_user_registers_and_fred() -> None:
    def user(words: list[int]) -> None:
        words[18], words[20], words[21] = 0x33, 0x7FFD00001000, 0x2B

    def fred(words: list[int]) -> None:  # event data above the selectors (arch/x86/include/asm/ptrace.h, fred_cs)
        words[18], words[21] = 0x10 | 1 << 16, 0x18 | 14 << 32

    assert x86_scan(user) == x86_scan(fred) == [0xFFFFFFFF81234567]


def test_x86_random_words_are_no_registers() -> None:
    random.seed(4)
    memory = Memory(X86_STACK.start, X86_STACK.end - X86_STACK.start)
    plausible = [0x10, 0x33, 0x18, 0x2B, 0x246, 0xFFFFFFFF81E00C00, 0xFFFFFFFF81234568, X86_STACK.start + 0x2000]
    found = 0
    for _round in range(40):
        for address in range(X86_STACK.start, X86_STACK.end, 8):
            memory.put(address, random.choice(plausible))
        memory.pages = Pages(memory.give)
        for frame in X86_64().scan(memory.pages, X86_STACK, X86_CODE):
            # This one passes every check.
            assert frame.entry is not None
            assert frame.registers["cs"] in (0x10, 0x33)
            found += 1
    assert found


@pytest.mark.parametrize("machine", [X86_64(), Sparc(), *ARM_KERNELS], ids=["x86", "sparc", "arm", "arm meta"])
def test_a_stack_that_is_not_in_the_dump(machine: object) -> None:
    assert isinstance(machine, (X86_64, Sparc, Aarch64))
    memory = Memory(X86_STACK.start + 0x2000, 0x1000, machine.name != "sparc64")
    assert machine.scan(memory.pages, X86_STACK, X86_CODE) == []
    assert machine.read(memory.pages, X86_STACK.end) is None


class OneTrap:
    """An unwinder that finds one trap, and nothing above it."""

    def __init__(self, trap: TrapFrame) -> None:
        self.trap = trap

    def step(self, frame: Frame, task: int) -> Step:
        return Step(end="no tables") if frame.trap is not None else Step(trap=self.trap)


@pytest.mark.parametrize("sp", [0x8000000000001000, 0x7FFC12345678, 0, X86_STACK.start - 0x1A0], ids=hex)
def test_x86_a_trap_counts_wherever_its_stack_pointer_leads(sp: int) -> None:
    """The memory below it is unknown then: only the entry from user space is found, no older trap."""
    memory = Memory(X86_STACK.start, X86_STACK.end - X86_STACK.start)
    old, user = X86_STACK.start + 0x1008, X86_STACK.end - 168
    memory.put(old - 8, ENTRY, *x86_regs(0xFFFFFFFF81111111, old + 168))
    memory.put(user - 8, ENTRY, *x86_regs(0x44BB20, 0x7FFC00000000, 0x33, 0x2B))
    registers = dict(zip(X86_64().registers, x86_regs(0xFFFFFFFF81234567, sp)))
    trap = TrapFrame(0xFFFFFE0000045F58, 0xFFFFFFFF81234567, sp, False, registers)
    double_fault = StackRange("DF 0", 0xFFFFFE0000045000, 0xFFFFFE0000046000)
    walker = StackWalker(memory.pages, X86_64(), X86_CODE, OneTrap(trap), [double_fault])
    found = walker.walk(Frame(0xFFFFFFFF81000010, 0xFFFFFE0000045E00, True, "cpu", {}), X86_STACK)
    assert [frame.pc for frame in found.frames] == [0xFFFFFFFF81000010, trap.pc]
    assert found.frames[1].trap is trap
    assert found.user is not None
    assert found.user.pc == 0x44BB20
