"""Frames of Go code, by the runtime's own table (runtime/traceback.go, type unwinder).

Go's linker writes no .eh_frame, and a stripped program has no other unwind tables. Go's table has the frame size at
each instruction, so its frames are exact. Where the runtime goes from a goroutine's stack to the thread's own, the
context that it saved leads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.modules.golang.moduledata import GoModule, go_module_at
from dmods.modules.golang.pclntab import Function
from dmods.target import Arch, Target

# A trap or a preemption made it look as if the caller had called these: the caller's pc is exact.
INJECTED = ("runtime.sigpanic", "runtime.asyncPreempt", "runtime.debugCallV1", "runtime.debugCallV2")
# These go on to run on the thread's own stack. The goroutine's context was saved when they were called.
LEAVES_CONTEXT = ("runtime.morestack", "runtime.mcall")
SIGNAL_RETURN = ("runtime.sigreturn", "runtime.sigreturn__sigaction")
# struct g: stack (lo, hi), two guards, _panic, _defer, m; then sched: sp, pc, g. The same in Go 1.18 to 1.27.
G_M, G_SP, G_PC, G_SELF = 48, 56, 64, 72
_LINKS = (88, 96)  # sched.lr: 1.25 left out gobuf.ret, which stood before it
G_WORDS = 13
_M_POINTERS = range(8, 480, 8)  # where m.curg is


class SignalFrame(NamedTuple):
    """Where the kernel saves registers for a handler. Offsets count from sp when the handler returns."""

    ucontext: int
    siginfo: int
    registers: int
    names: tuple[str, ...]  # of the registers, in their order
    trampoline: bytes  # the code that the handler returns to


class GoMachine(NamedTuple):
    """A machine as Go uses it.

    ``links``: a call leaves its return address in a register, and a function stores it at sp (usesLR). ``thread_g``:
    where the current g is, as an offset from the thread pointer.
    """

    links: bool
    link: str
    g: str  # the register with the current g, or ""
    thread_g: int
    signal: SignalFrame


_X86_64 = GoMachine(
    links=False,
    link="",
    g="",
    thread_g=-8,  # runtime/tls_amd64.s
    # arch/x86/include/asm/sigframe.h, sys/ucontext.h: sp points to struct ucontext
    signal=SignalFrame(
        ucontext=0,
        siginfo=304,
        registers=40,
        names=(*(f"r{n}" for n in range(8, 16)), "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip"),
        trampoline=bytes.fromhex("48c7c00f0000000f05"),  # mov $__NR_rt_sigreturn,%rax; syscall
    ),
)
_AARCH64 = GoMachine(
    links=True,
    link="x30",
    g="x28",  # cmd/compile/abi-internal.md
    thread_g=16,  # runtime/tls_arm64.s: the first thread-local variable, in programs with C code
    # arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h: struct rt_sigframe has a siginfo and then struct ucontext
    signal=SignalFrame(
        ucontext=128,
        siginfo=0,
        registers=128 + 184,
        names=(*(f"x{n}" for n in range(31)), "sp", "pc"),
        trampoline=bytes.fromhex("681180d2010000d4"),  # mov x8,#__NR_rt_sigreturn; svc #0
    ),
)
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def go_machine(arch: Arch) -> Optional[GoMachine]:
    """Return how Go uses a machine, or None: its stacks are not known."""
    return _MACHINES.get(arch.name)


class Ended(Exception):
    """There are no more frames. The arguments: a key of process.unwind.ENDS, and the address in question."""


class Context(NamedTuple):
    """The goroutine of a thread: the bounds of its stack, and where it was when the runtime left that stack."""

    low: int
    high: int
    sp: int
    pc: int
    link: int = 0  # the link register; 0: the frame at sp has the return address

    def holds(self, sp: int) -> bool:
        """Return whether `sp` is on the goroutine's stack."""
        return self.low <= sp <= self.high


IDLE = Context(0, 0, 0, 0)  # the thread runs no goroutine


class GoCode(NamedTuple):
    """A frame.

    ``exact``: ``pc`` is where it was interrupted, not a return address. ``function``: None for other code than Go's.
    ``ucontext``, ``siginfo``: where they are, of the code that a signal handler returns to. ``saved``: the registers
    of what a signal interrupted.
    """

    pc: int
    sp: int
    exact: bool
    function: Optional[Function] = None
    ucontext: Optional[int] = None
    siginfo: Optional[int] = None
    saved: Optional[dict[str, int]] = None
    link: int = 0


def context_of(target: Target, words: Words, g: int) -> Optional[Context]:
    """Return the context of the goroutine with its struct g at `g`, or None where it is not in the dump."""
    fields = words.many(g, G_WORDS)
    if fields is None:
        return None
    links = (fields[at // 8] for at in _LINKS)
    link = next((link for link in links if link and go_module_at(target, link) is not None), 0)
    return Context(fields[0], fields[1], fields[G_SP // 8], fields[G_PC // 8], link)


def thread_context(target: Target, registers: Mapping[str, int]) -> Optional[Context]:
    """Return the goroutine that a thread runs, IDLE where it runs none, or None where that is not known.

    The current g of a thread on its own stack is g0 or gsignal. All three have the same m, and m.curg is the goroutine.
    """
    machine, words = go_machine(target.arch), Words(target.image(), target.arch.word)
    for m, g0 in _thread_ms(words, machine, target.arch, registers) if machine is not None else ():
        pointers = words.many(m, _M_POINTERS.stop // 8) or ()
        for one in pointers[1:]:
            fields = words.many(one, G_SELF // 8 + 1) if one != g0 and one and one % 8 == 0 else None
            if fields is None or fields[G_M // 8] != m or fields[G_SELF // 8] != one:
                continue
            if fields[0] < fields[1] and fields[0] <= fields[G_SP // 8] <= fields[1]:
                return context_of(target, words, one)
        return IDLE
    return None


def current_gs(words: Words, machine: GoMachine, arch: Arch, registers: Mapping[str, int]) -> Iterator[int]:
    """Yield what may be the current g of a thread."""
    pointer = registers.get(arch.thread_pointer, 0)
    g = words.at(pointer + machine.thread_g) if pointer >= 8 else None
    yield from filter(None, (registers.get(machine.g), g))


def _thread_ms(words: Words, machine: GoMachine, arch: Arch, registers: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yield the thread's struct m, and its g0."""
    for g in current_gs(words, machine, arch, registers):
        m = words.at(g + G_M) if g % 8 == 0 else None
        g0 = words.at(m) if m else None
        if m and g0 and words.at(g0 + G_M) == m:
            yield m, g0


def go_frames(target: Target, context: Optional[Context], first: GoCode, saved: bool = False) -> Iterator[GoCode]:
    """Yield the frames from a frame of Go code on. The last one may be other code. Raises Ended where they end.

    ``saved``: the runtime saved the first one's pc and sp, so they belong together.
    """
    machine = go_machine(target.arch)
    if machine is None:
        raise Ended("no tables", first.pc)
    walk = _Walk(target, machine, context)
    code, callee = first, ""
    while True:
        module = go_module_at(target, code.pc)
        function = module.table.at(code.pc) if module is not None else None
        code = code._replace(function=function)
        if function.name in SIGNAL_RETURN if function is not None else callee == "runtime.sigtramp":
            if function is None and not is_trampoline(target, machine, code.pc):
                yield code
                return
            signal = machine.signal
            yield code._replace(ucontext=code.sp + signal.ucontext, siginfo=code.sp + signal.siginfo)
            code, callee = interrupted(target, machine, code.sp), ""
            continue
        yield code
        if module is None or function is None:
            return
        code, callee = walk.caller(module, function, code, saved), function.name
        saved = False


def is_trampoline(target: Target, machine: GoMachine, pc: int) -> bool:
    """Return whether the code at `pc` is what a signal handler returns to: libc's, or that of the vDSO."""
    wanted = machine.signal.trampoline
    return target.image().read(pc, len(wanted)) == wanted


def interrupted(target: Target, machine: GoMachine, sp: int) -> GoCode:
    """Return what a signal interrupted. `sp` is where the handler returned to. Raises Ended."""
    names = machine.signal.names
    registers = Words(target.image(), target.arch.word).many(sp + machine.signal.registers, len(names))
    if registers is None:
        raise Ended("unreadable", sp)
    saved = dict(zip(names, registers))
    return GoCode(
        saved[target.arch.pc], saved[target.arch.sp], True, saved=saved, link=saved[machine.link] if machine.link else 0
    )


class _Walk:
    def __init__(self, target: Target, machine: GoMachine, context: Optional[Context]) -> None:
        self._target = target
        self._words = Words(target.image(), target.arch.word)
        self._machine = machine
        self._context = context
        self._left = False  # the system's stack, for the goroutine's

    def caller(self, module: GoModule, function: Function, code: GoCode, saved: bool) -> GoCode:
        """Return the caller's frame. Raises Ended."""
        context, name = self._context, function.name
        if context is IDLE and name in (*LEAVES_CONTEXT, "runtime.systemstack"):
            raise Ended("outermost", code.pc)
        leaves = context is not None and not self._left and not context.holds(code.sp)
        if context is not None and leaves and name in LEAVES_CONTEXT:
            self._left = True
            if not context.holds(context.sp):
                raise Ended("outside", context.sp)
            return GoCode(context.pc, context.sp, False, link=context.link)
        if context is not None and leaves and name == "runtime.systemstack" and self._has_frame(module, function, code):
            self._left = True
            code = code._replace(sp=context.sp, link=0)
        elif function.top:
            if name != "runtime.sigtramp":
                raise Ended("outermost", code.pc)
            # The runtime's own traces end here. A handler returns to the runtime's code, to libc's or to the vDSO's.
            back = self._caller(module, function, code)
            caller = module.table.at(back.pc)
            if caller is not None and caller.name not in SIGNAL_RETURN:
                raise Ended("outermost", code.pc)
            return back
        elif function.writes_sp and not saved and name != "runtime.cgocallback":
            raise Ended("changes sp", code.pc)
        return self._caller(module, function, code)

    def _has_frame(self, module: GoModule, function: Function, code: GoCode) -> bool:
        """Return whether systemstack has left the goroutine's stack: with a link register, its prologue has not."""
        return not self._machine.links or module.table.sp_delta(function, code.pc) != 0

    def _caller(self, module: GoModule, function: Function, code: GoCode) -> GoCode:
        delta = module.table.sp_delta(function, code.pc)
        if delta is None or delta < 0:
            raise Ended("no tables", code.pc)
        top = code.sp + delta
        injected = function.name in INJECTED
        if not self._machine.links:
            return self._inside(code, GoCode(self._word(top), top + 8, injected))
        back = code.link if code.link and delta == 0 else self._word(code.sp)
        if not injected:
            return self._inside(code, GoCode(back, top, False))
        # The handler stored the link register below the interrupted frame, and aligned sp (runtime/signal_arm64.go).
        link = self._word(top)
        module_of_caller = go_module_at(self._target, back)
        known = module_of_caller is not None and module_of_caller.table.at(back) is not None
        return self._inside(code, GoCode(back if known else link, top + 16, True, link=link))

    def _inside(self, code: GoCode, caller: GoCode) -> GoCode:
        context = self._context
        if context is not None and context.holds(code.sp) and not context.holds(caller.sp):
            raise Ended("outside", caller.sp)
        return caller

    def _word(self, address: int) -> int:
        word = self._words.at(address)
        if not word:
            raise Ended("unreadable" if word is None else "zero", address)
        return word
