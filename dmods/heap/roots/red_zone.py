"""The red zone of a thread: memory below the stack pointer that a leaf function may use without moving it."""

from __future__ import annotations

from dmods import _engine
from dmods.process.unwind import function_at
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

        It is 0 where the function calls others, and where the code behind a system call is proven not to read it: most
        of this code is libc's. Functions that have returned left what lies below sp.
        """
        arch = self.target.arch
        pc = thread.registers.get(arch.pc, 0)
        if not arch.red_zone or pc < len(_SYSCALL):
            return arch.red_zone
        if self._followed >= _MOST_THREADS:
            return self._seen.get(pc, arch.red_zone)
        self._followed += 1
        size = self._behind_call(thread, pc) if self._is_behind_call(pc) else self._in_function(pc)
        self._seen[pc] = max(size, self._seen.get(pc, 0))
        return size

    def _is_behind_call(self, pc: int) -> bool:
        return self.target.image().read(pc - len(_SYSCALL), len(_SYSCALL)) == _SYSCALL

    def _behind_call(self, thread: Thread, pc: int) -> int:
        arch = self.target.arch
        registers = [thread.registers.get(name, 0) for name in _REGISTERS]
        found = _engine.red_zone_in_use(self.target.image(), pc, registers)
        return arch.red_zone if found is None else -(-found // arch.word) * arch.word

    def _in_function(self, pc: int) -> int:
        function = function_at(self.target, pc)
        if function is not None and _engine.calls_function(self.target.image(), *function):
            return 0
        return self.target.arch.red_zone
