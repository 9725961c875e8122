"""The latest time of the runtime's clock (nanotime) that a core tells, so that waits have a lower bound.

The runtime's monitor thread notes in each P when it last saw it do something new (runtime.p, sysmontick.schedwhen), at
most 10 ms apart while the program works (runtime/proc.go, sysmon). A garbage collection notes when it began in each
goroutine that waits (g.waitsince).
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.cached import cached
from dmods.base.words import Words
from dmods.runtimes.golang.goroutines import SYSCALL, WAITING, Goroutine, find_goroutines
from dmods.runtimes.golang.layout import M, find_slices
from dmods.target import Target

# struct p of 1.19 to 1.27: id and status, link, ticks, sysmontick, m. Since sysmontick has its ticks side by side (by
# 1.24), it is 8 bytes shorter.
_SCHEDWHEN = 32
_M_AT = (48, 56)
_MOST_PS = 4096  # GOMAXPROCS of several thousands is allowed
_STATES = 5  # values of p.status
_M_WORDS = 64  # of struct m, in which p is
_LONGEST = 10 * 365 * 86400 * 10**9  # nanoseconds that a machine runs, at most


@cached
def latest_time(target: Target) -> int:
    """Return the latest time of the runtime's clock that is known, in nanoseconds; 0 where none is.

    The core was taken then, or later.
    """
    found = find_goroutines(target)
    words = Words(target.image(), target.arch.word)
    known = [one.waits_since for one in found.all if 0 < one.waits_since < 1 << 62]
    first = max(known, default=0)
    times = [at for at in _times(target, words) if first <= at < first + _LONGEST]
    return max([first, *times])


def waited(target: Target, one: Goroutine) -> int:
    """Return for how many seconds a goroutine has waited, at least. 0: not known.

    A garbage collection notes the time. A goroutine that began to wait since has none.
    """
    since = one.waits_since
    return max(0, latest_time(target) - since) // 10**9 if 0 < since < 1 << 62 else 0


def trace_state(target: Target, one: Goroutine) -> str:
    """Return what the runtime's own trace says of a goroutine in brackets: "chan receive, 5 minutes".

    The source is goroutineheader() in runtime/traceback.go. The minutes are the least that it has waited.
    """
    minutes = waited(target, one) // 60 if one.status in (WAITING, SYSCALL) else 0
    waits = f", {minutes} minutes" if minutes else ""
    return one.state + waits + (", locked to thread" if one.locked is not None else "")


def _times(target: Target, words: Words) -> Iterator[int]:
    ms = {row[0] for g in find_goroutines(target).all if (row := words.many(g.address + M, 1)) and row[0]}
    for m in ms:
        for p in words.many(m, _M_WORDS) or ():
            yield from _of_p(words, p, m)
    symbol = target.lookup("runtime.allp")
    if symbol is not None:
        slices = words.many(symbol.address, 3)
        yield from _of_all(words, slices[0], slices[1]) if slices is not None else ()
        return
    for module in find_goroutines(target).modules:
        for start, end in module.data:
            for address, length, _capacity in find_slices(words, start, end):
                if length <= _MOST_PS:
                    yield from _of_all(words, address, length)


def _of_p(words: Words, p: int, m: int) -> Iterator[int]:
    """Yield the times of the P that an m has: it points back."""
    fields = words.many(p, 8) if p >= 4096 and p % 8 == 0 else None
    if fields is not None and m in (fields[_M_AT[0] // 8], fields[_M_AT[1] // 8]) and _is_p(fields[0]):
        yield fields[_SCHEDWHEN // 8]


def _of_all(words: Words, address: int, length: int) -> Iterator[int]:
    """Yield the times of runtime.allp, whose elements are numbered."""
    ps = words.many(address, min(length, _MOST_PS)) if address % 8 == 0 else None
    times = []
    for number, p in enumerate(ps or ()):
        head = words.many(p, 6) if p >= 4096 and p % 8 == 0 else None
        if head is None or head[0] & 0xFFFFFFFF != number or not _is_p(head[0]):
            return
        times.append(head[_SCHEDWHEN // 8])
    yield from times


def _is_p(head: int) -> bool:
    return head & 0xFFFFFFFF < _MOST_PS and head >> 32 < _STATES
