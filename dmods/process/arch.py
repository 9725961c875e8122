"""The machines whose dumps dmods reads. Registers are in the order of the kernel's ``elf_gregset_t``."""

from __future__ import annotations

from dmods.errors import UserError
from dmods.target import Arch


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# arch/x86/include/asm/user_64.h: struct user_regs_struct. fs_base is the thread pointer (psABI 3.4.2).
X86_64 = Arch(
    name="x86_64",
    word=8,
    little_endian=True,
    pc="rip",
    sp="rsp",
    thread_pointer="fs_base",
    registers=_names(
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
        "fs_base gs_base ds es fs gs"
    ),
    red_zone=128,
)

# arch/x86/include/asm/user_32.h. The thread pointer is the base of the segment in gs. It is in the note NT_386_TLS.
I386 = Arch(
    name="i386",
    word=4,
    little_endian=True,
    pc="eip",
    sp="esp",
    thread_pointer="gs_base",
    registers=_names("ebx ecx edx esi edi ebp eax ds es fs gs orig_eax eip cs eflags esp ss"),
)

# arch/arm64/include/uapi/asm/ptrace.h: struct user_pt_regs. tpidr is in the note NT_ARM_TLS.
AARCH64 = Arch(
    name="aarch64",
    word=8,
    little_endian=True,
    pc="pc",
    sp="sp",
    thread_pointer="tpidr",
    registers=(*(f"x{n}" for n in range(31)), "sp", "pc", "pstate"),
)

_BY_MACHINE = {
    (62, 8): X86_64,  # EM_X86_64
    (3, 4): I386,  # EM_386
    (183, 8): AARCH64,  # EM_AARCH64
}


def arch_of_elf(machine: int, word: int, little_endian: bool, where: str) -> Arch:
    """Return the Arch for the ``e_machine`` of an ELF header.

    Raises UserError, which names ``where``, for a machine that dmods does not know.
    """
    arch = _BY_MACHINE.get((machine, word))
    if arch is None or arch.little_endian != little_endian:
        order = "little" if little_endian else "big"
        raise UserError(
            f"{where} is from a machine that dmods does not know: "
            f"{_machine_name(machine)}, {word * 8}-bit, {order}-endian",
            f"dmods reads dumps of {', '.join(a.name for a in _BY_MACHINE.values())}",
        )
    return arch


def _machine_name(machine: int) -> str:
    from elftools.elf.enums import ENUM_E_MACHINE

    names = [name for name, number in ENUM_E_MACHINE.items() if number == machine and name.startswith("EM_")]
    return str(names[0])[3:].lower() if names else f"e_machine {machine}"
