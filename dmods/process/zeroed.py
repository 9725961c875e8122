"""Memory for which a debugger wrote zeros into a core, because it could not read it.

gdb before 18 copies a mapping from its beginning, a megabyte at a time, and leaves zeros from the first megabyte on
that has a page which cannot be read (gdb/gcore.c, gcore_copy_callback). Such pages are the guards that glibc 2.42 and
later install inside of the mappings of stacks (madvise(2), MADV_GUARD_INSTALL), so that whole stacks are lost, and
missing pages of userfaultfd(2). The core does not say so. What must not be zero tells it: the stack of a thread that
runs, the data of modules, and what an allocator keeps in its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.errors import DmodsError
from dmods.modules.elf import PAGE, PF_W, PT_DYNAMIC, PT_LOAD, parse
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import first_stack
from dmods.target import Module, Target, Thread

#: How to have the memory after all.
REMEDY = "take the dump with gdb 18, let the kernel write it, or look at the process itself with -p PID"
_STACK_SAMPLE = 64 << 10
_MOST_NAMES = 3


class Zeroed(NamedTuple):
    """Memory for which a debugger wrote zeros: its name in words, and the bytes of its mappings."""

    what: str
    size: int


@cached
def zeroed(target: Target) -> list[Zeroed]:
    """Return the stacks and the data of modules for which a core has zeros."""
    if target.path is None:
        return []
    threads = target.threads()
    stacks = [thread.registers[target.arch.sp] for thread in threads if _lacks_stack(target, thread)]
    modules = [module for module in target.modules() if _lacks_data(target, module)]
    found = []
    if stacks:
        mappings = {mapping.start: mapping.size for sp in stacks if (mapping := mapping_at(target, sp)) is not None}
        found.append(Zeroed(f"the stacks of {len(stacks)} of {len(threads)} threads", sum(mappings.values())))
    if modules:
        data = sum(m.size for m in target.mappings() if "w" in m.flags and m.path in {each.path for each in modules})
        found.append(Zeroed(f"the data of {_names([module.name for module in modules])}", data))
    return found


def zeroed_memory(target: Target, structures: Sequence[int]) -> str:
    """Return in words what a debugger did not read, with the remedy, or "" where nothing shows it.

    ``structures`` are addresses of an allocator's structures that are zeros.
    """
    parts = [each.what for each in zeroed(target)]
    parts += [f"the heap at {_names([f'{place:#x}' for place in structures])}"] if structures else []
    if not parts:
        return ""
    return (
        f"the dump has zeros for {' and '.join(parts)}: live blocks look leaked without the pointers there "
        f"(gdb before 18 writes zeros where it cannot read, as in stacks of glibc 2.42: {REMEDY})"
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _lacks_stack(target: Target, thread: Thread) -> bool:
    """Return whether the dump has zeros for the stack that the thread runs on.

    At the top of a thread's stack is its TCB, and the first thread's has its arguments there. Either is lost with the
    stack. Where the TCB is there, the zeros above sp are an array that was never written, or sp is lost.
    """
    sp, tcb = thread.registers.get(target.arch.sp, 0), thread.registers.get(target.arch.thread_pointer or "", 0)
    mapping = mapping_at(target, sp)
    if mapping is None or not mapping.dumped or "w" not in mapping.flags or mapping.path is not None:
        return False
    first = first_stack(target)
    if tcb in mapping:
        top = tcb, tcb + 3 * target.arch.word
    elif first is not None and first[0] <= sp < first[1]:
        top = first[1] - PAGE, first[1]
    else:
        return False
    return _is_zeroed(target, *top) and _is_zeroed(target, sp, min(sp + _STACK_SAMPLE, mapping.end))


def _is_zeroed(target: Target, start: int, end: int) -> bool:
    found = target.image().read(start, end - start)
    return len(found) == end - start and not any(found)


def _lacks_data(target: Target, module: Module) -> bool:
    """Return whether the dynamic section of the module is zeros. The linker wrote it into the module's data."""

    def at(offset: int, size: int) -> bytes:
        return target.image().read(module.start + offset, size)

    try:
        header = parse(at, module.name)
    except DmodsError:
        return False
    data = [segment for segment in header.segments if segment.type == PT_LOAD and segment.flags & PF_W]
    for dynamic in header.segments:
        if dynamic.type == PT_DYNAMIC and any(0 <= dynamic.vaddr - each.vaddr < each.filesz for each in data):
            start = dynamic.vaddr + module.bias
            return dynamic.filesz > 0 and _is_zeroed(target, start, start + min(dynamic.filesz, PAGE))
    return False
