"""Where the fields of struct g and struct m are in a process. Its own goroutines prove that, and no release is assumed.

The order of the fields is that of runtime/runtime2.go, Go 1.18 to 1.27. Releases added and removed fields between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words
from dmods.modules.golang.moduledata import GoModule, go_module_at
from dmods.process.go_frames import current_gs, go_machine
from dmods.process.mappings import mapping_at
from dmods.target import Target, Thread

MOST_GOROUTINES = 1 << 20
G_SIZE = 512  # bytes of struct g that are read: the fields that matter lie in the first 400
STATUSES = 16  # values of g.atomicstatus, without the scan bit (0x1000)
SCAN = 0x1000
DEAD = (0, 6, 11)  # _Gidle, _Gdead, _Gdeadextra: these have no stack to show
# struct g: stack (lo, hi), two guards, _panic, _defer, m; then sched: sp, pc, g
M, SP, PC, SCHED_G = 48, 56, 64, 72
_SCHED_ENDS = (112, 104)  # 1.25 left gobuf.ret out
_GOID = range(136, 200, 8)
_PROVERS = 4096  # goroutines that must agree
_MOST_STACK = 1 << 32
_CHUNK = 1 << 20
_M_PROCID = range(56, 96, 8)


class Layout(NamedTuple):
    """Offsets in struct g and struct m. None: no offset is proven."""

    syscall: int  # g.syscallsp; syscallpc follows
    goid: int  # atomicstatus is 8 bytes before, schedlink, waitsince and waitreason follow
    gopc: Optional[int]  # startpc is two words behind it
    parent: Optional[int]  # g.parentGoid (1.21)
    lockedm: Optional[int]
    procid: Optional[int]  # m.procid: the tid


def is_g(words: Words, address: int) -> bool:
    """Return whether a struct g is at the address: it has bounds of a stack, and its saved context points to it."""
    fields = words.many(address, 10) if address and address % 8 == 0 else None
    if fields is None or fields[SCHED_G // 8] not in (0, address):
        return False
    low, high = fields[0], fields[1]
    if low == high == 0:  # dead: its stack was freed
        return fields[SCHED_G // 8] == address
    if not 0 < high - low < _MOST_STACK or low % 8 or high % 8:
        return False
    # A goroutine that never stopped may have no context.
    return fields[SCHED_G // 8] == address or low <= fields[SP // 8] <= high


def find_allgs(target: Target, words: Words, modules: Sequence[GoModule]) -> tuple[Sequence[int], str]:
    """Return the addresses of all struct g, and a reason where they cannot be found.

    runtime.allgs is a slice: pointer, length, capacity. Without its symbol it is the longest slice of gs in the
    variables of the program.
    """
    symbol = target.lookup("runtime.allgs")
    if symbol is not None:
        slices = words.many(symbol.address, 3)
        elements = _elements(target, words, slices) if slices is not None else None
        if elements is not None:
            return elements, ""
    best: Sequence[int] = ()
    for module in modules:
        for start, end in module.data:
            for found in find_slices(words, start, end):
                if found[1] > len(best):
                    best = _elements(target, words, found) or best
    if not best:
        return best, "runtime.allgs is not found: no list in the program's variables holds goroutines"
    return best, ""


def find_slices(words: Words, start: int, end: int) -> Iterator[Sequence[int]]:
    """Yield the triples of words in a range that may be a slice of pointers."""
    for at in range(start, end, _CHUNK):
        data = words.image.read(at, min(_CHUNK + 16, end - at))
        numbers = memoryview(data[: len(data) // 8 * 8]).cast("Q")
        for place in range(len(numbers) - 2):
            length = numbers[place + 1]
            if 0 < length <= numbers[place + 2] <= 2 * MOST_GOROUTINES and numbers[place] > 4096:
                yield numbers[place : place + 3].tolist()


def _elements(target: Target, words: Words, slices: Sequence[int]) -> Optional[Sequence[int]]:
    """Return the elements of a slice of gs, or None where an element among the first, or the last one, is no g."""
    address, length, capacity = slices
    if address % 8 or not 0 < length <= capacity <= 2 * MOST_GOROUTINES:
        return None
    mapping = mapping_at(target, address)
    if mapping is None or "w" not in mapping.flags:
        return None
    length = min(length, MOST_GOROUTINES)
    few = words.many(address, min(length, 8))
    if few is None or not all(is_g(words, one) for one in few) or len(set(few)) != len(few):
        return None
    return words.many(address, length)


def prove(target: Target, words: Words, gs: Sequence[int]) -> tuple[Optional[Layout], str]:
    """Return the offsets that all goroutines agree on, or None and the field that no offset fits."""
    every = max(1, len(gs) // _PROVERS)
    rows = [(g, data) for g, data in ((g, _row(words, g)) for g in gs[::every]) if data is not None]
    goid = next((at for at in _GOID if rows and _fits_goid(rows, at)), None)
    if goid is None:
        return None, "g.goid: no offset has a unique number in each goroutine, after a valid status"
    alive = [(g, row) for g, row in rows if _status(row, goid) not in DEAD]
    syscall = next((at for at in _SCHED_ENDS if _fits_syscall(target, alive, at, goid)), None)
    if syscall is None:
        return None, "g.syscallsp: no offset has addresses in the goroutine's stack and in code"
    gopc = next((at for at in range(goid + 32, 448, 8) if _fits_gopc(target, alive, at, goid)), None)
    parent = gopc - 8 if gopc is not None and _fits_parent(alive, gopc - 8, goid) else None
    tids = {thread.tid for thread in target.threads()}
    ms = {row[M // 8] for _g, row in alive} | {thread_m(target, words, thread) or 0 for thread in target.threads()}
    pointers = {m for m in ms if _is_m(words, m)}
    lockedm = None
    if gopc is not None:
        spots = range(goid + 32, gopc, 8)
        lockedm = next((at for at in spots if _fits_locked(words, alive, at)), None)
        pointers |= {row[lockedm // 8] for _g, row in alive if lockedm is not None and row[lockedm // 8]}
    procid = next((at for at in _M_PROCID if pointers and _fits_procid(words, pointers, at, tids)), None)
    return Layout(syscall, goid, gopc, parent, lockedm, procid), ""


def _row(words: Words, g: int) -> Optional[Sequence[int]]:
    return words.many(g, G_SIZE // 8) or words.many(g, 400 // 8)


def _status(row: Sequence[int], goid: int) -> int:
    return row[goid // 8 - 1] & 0xFFFFFFFF & ~SCAN


def _fits_goid(rows: Sequence[tuple[int, Sequence[int]]], at: int) -> bool:
    """Return whether the numbers are unique, and a status and a lock stand before, no wait reason beyond 255 behind."""
    numbers = [row[at // 8] for _g, row in rows if row[at // 8]]
    if not numbers or len(set(numbers)) != len(numbers) or max(numbers) >= 1 << 48:
        return False
    status = [row[at // 8 - 1] for _g, row in rows]
    if any((each & 0xFFFFFFFF & ~SCAN) >= STATUSES or each >> 32 > 1 for each in status):
        return False
    # A goroutine that is alive has a number, and some are alive.
    alive = [row[at // 8] for _g, row in rows if _status(row, at) not in DEAD]
    return bool(alive) and all(alive)


def _fits_syscall(target: Target, rows: Sequence[tuple[int, Sequence[int]]], at: int, goid: int) -> bool:
    for _g, row in rows:
        sp, pc = row[at // 8], row[at // 8 + 1]
        if _status(row, goid) == 3 and not sp:
            return False
        if sp and not (row[0] <= sp <= row[1] and go_module_at(target, pc) is not None):
            return False
    return True


def _fits_gopc(target: Target, rows: Sequence[tuple[int, Sequence[int]]], at: int, goid: int) -> bool:
    """Return whether there is a pc in Go code, and two words behind it the entry of a function, in every goroutine."""
    for _g, row in rows:
        if at // 8 + 2 >= len(row):
            return False
        start = row[at // 8 + 2]
        module = go_module_at(target, start)
        if module is None or not module.table.is_entry(start):
            return False
        if row[at // 8] and go_module_at(target, row[at // 8]) is None:
            return False
    return bool(rows)


def _fits_parent(rows: Sequence[tuple[int, Sequence[int]]], at: int, goid: int) -> bool:
    """Return whether each number is smaller than the goroutine's own, and some are not 0 (before 1.21: sigpc)."""
    numbers = [(row[at // 8], row[goid // 8]) for _g, row in rows]
    return any(parent for parent, _own in numbers) and all(parent < own for parent, own in numbers)


def thread_m(target: Target, words: Words, thread: Thread) -> Optional[int]:
    """Return the m of a thread, or None where the thread has no g."""
    machine = go_machine(target.arch)
    gs = current_gs(words, machine, target.arch, thread.registers) if machine is not None else ()
    return next(filter(None, (words.at(g + M) for g in gs if is_g(words, g))), None)


def _is_m(words: Words, m: int) -> bool:
    """Return whether a struct m is at the address: its first word is its g0, whose m it is."""
    g0 = words.at(m) if m and m % 8 == 0 else None
    return bool(g0) and g0 is not None and words.at(g0 + M) == m


def _fits_locked(words: Words, rows: Sequence[tuple[int, Sequence[int]]], at: int) -> bool:
    found = [row[at // 8] for _g, row in rows if row[at // 8]]
    return bool(found) and all(_is_m(words, m) for m in found)


def _fits_procid(words: Words, ms: set[int], at: int, tids: set[int]) -> bool:
    found = [words.at(m + at) for m in ms]
    return len(set(found)) == len(found) and all(tid in tids for tid in found)
