"""The part of each stack that is not in use: memory below the stack pointer. No word there is a pointer.

glibc and the kernel say where most stacks begin and end. A program may also make a stack itself: in a block, in a
static array, in the middle of a larger mapping. Live memory may lie below such a stack, and other stacks. So memory
below its stack pointer is dead only where something proves that it belongs to this stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Optional

from dmods import _engine
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.base.rows import at_or_before
from dmods.base.words import Words
from dmods.heap.roots.red_zone import RedZones
from dmods.modules.auxv import AT_ENTRY
from dmods.process.mappings import mapping_at
from dmods.process.threads import LiveStack, LiveStackFinder, ThreadStack
from dmods.process.unwind import COMPLETE_ENDS, walk
from dmods.target import Target, Thread

_START_SIZE = 128  # bytes of the function at a program's entry point (_start)
_GUARD_MAX = 1 << 20  # bytes of a guard; larger mappings without access are reserved for something else
_MOST_POINTERS = 1 << 12  # into the memory below one stack pointer
_MOST_ROUNDS = 8
_NOWHERE = -1  # the address of a register
_MOST_READ = 16 << 20  # bytes below a stack pointer in which an unused part is searched
_UNUSED = regex(rb"\0{4096,}")
_TOP_REACH = 1024  # bytes between the end of a stack and the sp of its outermost frame
_FLAGS_MAX = 4  # of ss_flags: 0, SS_ONSTACK, SS_DISABLE

Block = tuple[int, int]  # start, end


@dataclass
class Stacks:
    """The stacks, as far as they are known before the blocks of the heap are found. `dead` is sure.

    `live` are the live parts of all stacks, also of those that threads left for a signal handler.
    `made` are the stacks that the program made itself: the lowest live address, and the sp of the outermost frame.
    `lowest` are the lowest live addresses of all stacks. Both are sorted.
    """

    dead: list[tuple[int, int]] = field(default_factory=list)
    live: list[tuple[int, int]] = field(default_factory=list)
    made: list[tuple[int, int]] = field(default_factory=list)
    lowest: list[int] = field(default_factory=list)


def dead_stacks(target: Target, stacks: Sequence[ThreadStack], notes: list[str]) -> Stacks:
    """Return the memory of stacks that glibc or the kernel made and that no thread uses."""
    finder, zones, missed = LiveStackFinder(target), RedZones(target), 0
    threads = {thread.tid: thread for thread in target.threads()}
    owners = {(stack.tcb, stack.start) for stack in stacks if stack.sp and stack.start <= stack.sp < stack.end}
    found, live = Stacks(), Ranges()
    unused: list[tuple[int, int]] = []
    for stack in stacks:
        if stack.tid is None:
            unused.extend(_of_exited(target, stack))
            continue
        thread = threads.get(stack.tid)
        if thread is None or stack.sp is None:
            continue
        if finder.out_of_budget:
            missed += 1
            found.lowest.append(stack.sp)
            if stack.known:
                live.add(stack.start, stack.end)
            continue
        in_use = [_with_red_zone(zones, thread, stack, each) for each in finder.live_stacks(thread)]
        if not (stack.start <= stack.sp < stack.end) and (stack.tcb, stack.start) in owners:
            # A thread that clone(2) made without CLONE_SETTLS has the thread pointer of another, whose stack this is.
            in_use = [each for each in in_use if (each.start, each.end) != (stack.start, stack.end)]
        for each in in_use:
            live.add(each.start, each.end)
            found.lowest.append(each.start)
            if not each.known:
                found.made.append((each.start, each.outermost))
        here = any(each.start < stack.end and stack.start < each.end for each in in_use)
        if here and stack.known and not _may_be_coroutine(target, thread, stack):
            unused.append((stack.start, stack.end))
    absent = sum(stack.tid is not None and stack.tid not in threads for stack in stacks)
    if absent:
        notes.append(
            f"{absent} threads have a stack in use, and no registers in the dump: these stacks count as live "
            "(the process shares its memory with its parent, as after vfork; or the dump lacks its threads)"
        )
    if missed:
        notes.append(f"the threads have too many frames: for {missed} threads the whole stack counts as live")
    found.dead, found.live = live.without(unused), list(live)
    found.lowest.sort()
    found.made.sort()
    return found


def _of_exited(target: Target, stack: ThreadStack) -> Iterator[tuple[int, int]]:
    """Yield the stack of a thread that has exited. Its TCB still holds what glibc keeps for the next thread (the
    dtv)."""
    yield stack.start, stack.tcb if stack.tcb is not None else stack.end
    if stack.tcb is not None and not target.arch.tcb_is_pthread:
        yield stack.tcb + 2 * target.arch.word, stack.end  # TLS variant I: static TLS lies above the TCB


def _with_red_zone(zones: RedZones, thread: Thread, stack: ThreadStack, live: LiveStack) -> LiveStack:
    inside = stack.start <= live.start < stack.end
    start = _in_use(zones, thread, live.start, stack.start if inside else 0)
    if inside and stack.known and not live.known:
        # The dump has no thread pointers, and `stacks_of` found the struct pthread another way.
        return live._replace(start=start, end=stack.end, known=True)
    return live._replace(start=start)


def _in_use(zones: RedZones, thread: Thread, start: int, low: int) -> int:
    """Return where the live part of a stack begins: at sp, or a red zone below it.

    A leaf function may use the red zone without moving sp.
    """
    if start != thread.registers.get(zones.target.arch.sp):
        return start
    return max(low, start - zones.size(thread))


def _may_be_coroutine(target: Target, thread: Thread, stack: ThreadStack) -> bool:
    """Return whether the thread may run on an array inside a frame of the first stack.

    Then the frames of the function that made the array lie below sp. Only the first thread ends in the program's entry
    point; a thread of libc is taken for what libc says. A dump by valgrind does not say which thread is the first.
    """
    if stack.tcb is not None and stack.start <= stack.tcb < stack.end:
        return False
    if target.pid not in (0, thread.tid):
        return True
    frames, end = walk(target, thread)
    if end not in COMPLETE_ENDS or not frames:
        return False  # the stack is damaged: it says nothing
    pc, entries = frames[-1].code_address, {target.auxv.get(AT_ENTRY, 0)}
    words = Words(target.image(), target.arch.word)
    for module in target.modules():
        if module.start <= pc < module.end:  # the program, where ld.so was run as a command
            entry = words.at(module.start + 24) or 0  # e_entry, in both classes of ELF
            entries |= {entry, (entry + module.bias) & words.mask}
    return not any(entry <= pc < entry + _START_SIZE for entry in entries)


# -- stacks that the program made -------------------------------------------------------------------------------------


class _Holder(NamedTuple):
    """The memory that holds a stack which the program made, and the stack's lowest live address.

    `top` is the sp of its outermost frame.

    `bounded`: it is a block or a variable, or a guard page lies right below. Otherwise it is a mapping, which says
    nothing.
    """

    start: int
    end: int
    bounded: bool
    sp: int
    top: int


def dead_in_made_stacks(
    target: Target,
    stacks: Stacks,
    owned: Ranges,
    searched: Iterable[tuple[int, int]],
    block_of: Callable[[int], Optional[Block]],
) -> list[tuple[int, int]]:
    """Return the dead memory of stacks that the program made, where it is proven.

    The bottom of a stack is proven by a ``stack_t`` that the program gave to makecontext(3) or sigaltstack(2), by a
    guard page, or by the bounds of the block or the variable that holds the stack. All but the first may begin with a
    structure: then a part that was never written lies between it and the stack. Pointers from `searched`, all live
    memory and the heap, into the middle disprove it: they lead to other stacks, or to data.

    `block_of` returns the live block that holds an address. This reads all of `searched` once if there is such a stack.
    """
    holders = [_holder(target, sp, top, owned, block_of) for sp, top in stacks.made]
    alone = [each for each in holders if each is not None and _is_alone(stacks, each)]
    if not alone:
        return []
    image, word = target.image(), target.arch.word
    wanted = [(each.start, each.sp) for each in alone]
    found = _engine.find_pointers(image, list(searched), word, wanted, _MOST_POINTERS)
    words = Words(image, word)
    in_registers = _in_registers(target, alone)
    pointers = [
        [(at, words.at(at) or 0) for at in places if not each.start <= at < each.sp] + in_registers.get(each.sp, [])
        if len(places) < _MOST_POINTERS
        else None
        for each, places in zip(alone, found)
    ]
    by_bounds = [_above_unused(words, each) if each.bounded else None for each in alone]
    # What only the dead part of another stack points to is not disproved. So all of them are taken for dead first.
    dead: list[Optional[tuple[int, int]]] = [(each.start, each.sp) for each in alone]
    for round_ in range(_MOST_ROUNDS + 1):
        ignored = Ranges(part for part in dead if part is not None and round_ < _MOST_ROUNDS)
        before = dead
        dead = [
            _dead(words, each, bounded, [(at, value) for at, value in held if at not in ignored])
            if held is not None and part is not None
            else None
            for each, bounded, held, part in zip(alone, by_bounds, pointers, before)
        ]
        if dead == before:
            break
    return [part for part in dead if part is not None and part[0] < part[1]]


def _in_registers(target: Target, holders: Sequence[_Holder]) -> dict[int, list[tuple[int, int]]]:
    """Return the pointers in registers into the memory below each stack pointer, as (no address, value).

    Those of the stack's own thread do not count: a register may keep what a function that returned left in it.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    starts, arch = [holder.start for holder in holders], target.arch
    for thread in target.threads():
        own = thread.registers.get(arch.sp, 0)
        for value in thread.registers.values():
            index = bisect_right(starts, value) - 1
            if index < 0 or value >= holders[index].sp:
                continue
            if not holders[index].sp <= own <= holders[index].sp + arch.red_zone:
                found.setdefault(holders[index].sp, []).append((_NOWHERE, value))
    return found


def _is_alone(stacks: Stacks, holder: _Holder) -> bool:
    """Return whether no other stack pointer lies below this one in the same holder."""
    first = bisect_left(stacks.lowest, holder.start)
    own = bisect_left(stacks.lowest, holder.sp)
    return own == first and bisect_right(stacks.lowest, holder.sp) == own + 1


def _holder(
    target: Target, sp: int, top: int, owned: Ranges, block_of: Callable[[int], Optional[Block]]
) -> Optional[_Holder]:
    if sp in owned:
        block = block_of(sp)
        return _Holder(*block, True, sp, top) if block is not None and block[0] < sp < block[1] else None
    symbol = target.symbol_at(sp)
    if symbol is not None and symbol.address < sp < symbol.address + symbol.size:
        return _Holder(symbol.address, symbol.address + symbol.size, True, sp, top)
    mapping = mapping_at(target, sp)
    if mapping is None or "w" not in mapping.flags:
        return None
    start = max((end for _start, end in owned.within(mapping.start, sp)), default=mapping.start)
    if start >= sp:
        return None
    guarded = start == mapping.start and mapping.anonymous and _has_guard(target, start, owned)
    return _Holder(start, mapping.end, guarded, sp, top)


def _has_guard(target: Target, start: int, owned: Ranges) -> bool:
    """Return whether memory that cannot be accessed lies right below the address, as a guard.

    The rest of an arena has no access either, but lies behind the arena. gdb's gcore writes such memory as readable
    zeros.
    """
    mappings = target.mappings()
    index = at_or_before(mappings, start - 1)
    guard = mappings[index] if index >= 0 else None
    if guard is None or guard.end != start or not guard.anonymous or guard.size > _GUARD_MAX:
        return False
    if guard.flags not in ("---", "r--") or guard.start - 1 in owned:
        return False
    return not target.image().read(guard.start, guard.dumped).strip(b"\0")


def _dead(
    words: Words,
    holder: _Holder,
    by_bounds: Optional[tuple[int, int]],
    pointers: Sequence[tuple[int, int]],
) -> Optional[tuple[int, int]]:
    """Return the dead part of a stack, which is `by_bounds` unless pointers say something else.

    `pointers` are the words, (address, value), that lead into the memory below.
    """
    declared = [value for at, value in pointers if _is_stack_t(words, at, value, holder)]
    start = max(declared, default=holder.start)
    if any(value > start for _at, value in pointers):
        return None
    return (start, holder.sp) if declared else by_bounds


def _is_stack_t(words: Words, at: int, value: int, holder: _Holder) -> bool:
    """Return whether a ``stack_t`` at the address describes this stack: ss_sp, ss_flags (an int), ss_size.

    Its end is where the outermost frame is. Other structures have a base and a size as well.
    """
    size, flags = words.at(at + 2 * words.size) or 0, words.int32(at + words.size)
    return flags in range(_FLAGS_MAX) and holder.top <= value + size <= min(holder.end, holder.top + _TOP_REACH)


def _above_unused(words: Words, holder: _Holder) -> Optional[tuple[int, int]]:
    """Return the memory between the unused part of a stack and its stack pointer.

    Below the unused part, a structure may have other members. So the part nearest to sp is taken. Where no large part
    is unused, nothing is sure.
    """
    start = max(holder.start, holder.sp - _MOST_READ)
    data = words.image.read(start, holder.sp - start)
    if len(data) != holder.sp - start:
        return None
    unused = max(_UNUSED.finditer(data), key=lambda run: run.end(), default=None)
    if unused is None:
        return None
    return -(-(start + unused.end()) // words.size) * words.size, holder.sp
