"""Names of signals, and the kernel's ``siginfo_t``."""

from __future__ import annotations

import struct
from typing import Optional

from dmods.target import Signal

# include/uapi/asm-generic/signal.h: the numbers of x86 and arm64. Python's own ``signal`` has those of the
# machine that it runs on.
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

# Signals that an instruction causes, where si_code is above 0: then the kernel sent the signal.
FAULTS = frozenset({SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV})

# Signals that do not end a process by default. A debugger that dumps a living process leaves SIGSTOP in the core.
_HARMLESS = frozenset(
    _NUMBERS[name] for name in ("SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH")
)


def name(number: int) -> str:
    """Return the name of a signal: ``SIGSEGV`` for 11, ``signal 99`` for an unknown number.

    ``SIGRTMIN+2`` counts from 32, as the kernel does. (glibc keeps 32 and 33 for itself.)
    """
    if 32 <= number <= 64:
        return "SIGRTMIN" + (f"+{number - 32}" if number > 32 else "")
    return next((name for name, value in _NUMBERS.items() if value == number), f"signal {number}")


def parse_name(text: str) -> Optional[int]:
    """Return the number of a signal's name ("SIGSEGV"), or None for an unknown one."""
    return _NUMBERS.get(text)


def code_name(number: int, code: int) -> str:
    """Return the name of a si_code: ``SEGV_MAPERR`` for (11, 1), ``code 77`` for an unknown one."""
    if code in _ANY_CODE:
        return _ANY_CODE[code]
    prefix, _, names = _CODES.get(number, "").partition(": ")
    words = names.split()
    return f"{prefix}_{words[code - 1]}" if 0 < code <= len(words) else f"code {code}"


def describe(signal: Signal) -> str:
    """Return ``SIGSEGV SEGV_MAPERR``, or the name alone where the dump does not hold the code."""
    if signal.code is None:
        return name(signal.number)
    return f"{name(signal.number)} {code_name(signal.number, signal.code)}"


def is_deadly(signal: Signal) -> bool:
    """Return whether the signal can have ended the process."""
    return signal.number not in _HARMLESS


def is_fault(signal: Signal) -> bool:
    """Return whether an instruction of the thread caused the signal. Otherwise a process sent it."""
    return signal.number in FAULTS and signal.code is not None and signal.code > 0


def parse(data: bytes, word: int) -> Optional[Signal]:
    """Return the signal that a ``siginfo_t`` describes, or None where the bytes cannot be one.

    The fields are si_signo, si_errno, si_code, then the union, aligned to a word.
    """
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
