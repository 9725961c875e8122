"""Signals by name, and the kernel's ``siginfo_t`` where a dump holds one."""

from __future__ import annotations

import struct
from typing import Optional

from dmods.target import Signal

# include/uapi/asm-generic/signal.h: the numbers of x86 and arm64. Python's own ``signal`` names the machine it runs on.
_NAMES = """
HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ
VTALRM PROF WINCH IO PWR SYS
"""
_NUMBERS = {f"SIG{name}": number for number, name in enumerate(_NAMES.split(), 1)}
SIGILL, SIGTRAP, SIGABRT, SIGBUS = (_NUMBERS[name] for name in ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS"))
SIGFPE, SIGSEGV, SIGSYS = (_NUMBERS[name] for name in ("SIGFPE", "SIGSEGV", "SIGSYS"))

# include/uapi/asm-generic/siginfo.h; codes count from 1.
_CODES = {
    SIGILL: "ILL: ILLOPC ILLOPN ILLADR ILLTRP PRVOPC PRVREG COPROC BADSTK BADIADDR",
    SIGFPE: "FPE: INTDIV INTOVF FLTDIV FLTOVF FLTUND FLTRES FLTINV FLTSUB",
    SIGSEGV: "SEGV: MAPERR ACCERR BNDERR PKUERR ACCADI ADIDERR ADIPERR MTEAERR MTESERR CPERR",
    SIGBUS: "BUS: ADRALN ADRERR OBJERR MCEERR_AR MCEERR_AO",
    SIGTRAP: "TRAP: BRKPT TRACE BRANCH HWBKPT UNK PERF",
    SIGSYS: "SYS: SECCOMP USER_DISPATCH",
}
_ANY_CODE = {
    0: "SI_USER",
    -1: "SI_QUEUE",
    -2: "SI_TIMER",
    -3: "SI_MESGQ",
    -4: "SI_ASYNCIO",
    -5: "SI_SIGIO",
    -6: "SI_TKILL",
    0x80: "SI_KERNEL",
}

SI_KERNEL = 0x80
SIGINFO_SIZE = 128

# What an instruction itself brings about (when the kernel says so: si_code above 0).
FAULTS = frozenset({SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV})

# Those that end no process by themselves: a debugger that dumps a living one leaves SIGSTOP.
_HARMLESS = frozenset(
    _NUMBERS[name] for name in ("SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH")
)


def name(number: int) -> str:
    """``SIGSEGV`` for 11; ``SIGRTMIN+2`` as the kernel counts (glibc keeps 32 and 33 for itself); ``signal 99``."""
    if 32 <= number <= 64:
        return "SIGRTMIN" + (f"+{number - 32}" if number > 32 else "")
    return next((name for name, known in _NUMBERS.items() if known == number), f"signal {number}")


def code_name(number: int, code: int) -> str:
    """``SEGV_MAPERR`` for (11, 1); ``code 77`` for what no header names."""
    if code in _ANY_CODE:
        return _ANY_CODE[code]
    prefix, _, known = _CODES.get(number, "").partition(": ")
    words = known.split()
    return f"{prefix}_{words[code - 1]}" if 0 < code <= len(words) else f"code {code}"


def describe(signal: Signal) -> str:
    """``SIGSEGV SEGV_MAPERR``, or the name alone where the dump does not hold the code."""
    if signal.code is None:
        return name(signal.number)
    return f"{name(signal.number)} {code_name(signal.number, signal.code)}"


def is_deadly(signal: Signal) -> bool:
    """Whether a process can have died of it."""
    return signal.number not in _HARMLESS


def is_fault(signal: Signal) -> bool:
    """Whether the thread's own instruction brought it about, rather than somebody who sent it."""
    return signal.number in FAULTS and signal.code is not None and signal.code > 0


def parse(data: bytes, word: int) -> Optional[Signal]:
    """A ``siginfo_t``: si_signo, si_errno, si_code, then the union, aligned to a word. None where it can be none."""
    union = 16 if word == 8 else 12
    if len(data) < union + word:
        return None
    number, _errno, code = struct.unpack_from("<iii", data)
    if not 1 <= number <= 64:
        return None
    if code in (0, -1, -6):  # kill, sigqueue, tkill: si_pid
        return Signal(number, code, sender=struct.unpack_from("<i", data, union)[0])
    if number in FAULTS and 0 < code != SI_KERNEL:
        return Signal(number, code, address=struct.unpack_from("<Q" if word == 8 else "<I", data, union)[0])
    return Signal(number, code)
