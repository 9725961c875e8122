"""The red zone of a thread: memory below the stack pointer that a leaf function may use without moving it."""

from __future__ import annotations

from dmods import _engine
from dmods.target import Target, Thread

_SYSCALL = b"\x0f\x05"
# As they are numbered in x86-64's instructions.
_REGISTERS = [
    "rax",
    "rcx",
    "rdx",
    "rbx",
    "rsp",
    "rbp",
    "rsi",
    "rdi",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
]
_MOST_THREADS = 1 << 12  # whose code is followed


class RedZones:
    """Finds how many bytes below their stack pointers threads use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._seen: dict[int, int] = {}  # the most bytes in use, by pc
        self._followed = 0

    def size(self, thread: Thread) -> int:
        """Return the size of the red zone in use.

        It is 0 only where the code behind a system call is proven not to read it: most of this code is libc's, and
        functions that have returned left what lies below sp.
        """
        target, arch = self.target, self.target.arch
        pc = thread.registers.get(arch.pc, 0)
        if not arch.red_zone or pc < len(_SYSCALL):
            return arch.red_zone
        if target.image().read(pc - len(_SYSCALL), len(_SYSCALL)) != _SYSCALL:
            return arch.red_zone
        if self._followed >= _MOST_THREADS:
            return self._seen.get(pc, arch.red_zone)
        self._followed += 1
        registers = [thread.registers.get(name, 0) for name in _REGISTERS]
        found = _engine.red_zone_in_use(target.image(), pc, registers)
        size = arch.red_zone if found is None else -(-found // arch.word) * arch.word
        self._seen[pc] = max(size, self._seen.get(pc, 0))
        return size
