"""Find the meanings of a kernel address: a page, an object, a symbol, a stack, a per-CPU variable, a vmap area."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.pages.kinds import KINDS
from drgnext.kernel.slabs.objects import FREE_NAMES, SlabObjects
from drgnext.kernel.slabs.percpu_symbols import PerCpuSymbols
from drgnext.kernel.stacks.code import symbol_range
from drgnext.kernel.stacks.tasks import Task, Tasks

if TYPE_CHECKING:
    from drgn import Object, Program

_MOST_PAGES = 1 << 16  # pages of stacks and vmap areas that are named by their own addresses
_WORD = (1 << 64) - 1
_INIT = ("__init_begin", "__init_end")


class Place(NamedTuple):
    """A meaning of an address: the kind in a word, and a sentence that follows "ADDRESS is"."""

    kind: str
    text: str


class Places:
    """Names for the addresses of one kernel.

    ``doubt``: a block of kmalloc with pages of its own may be something else (SlabLeaks.large_doubt).
    """

    def __init__(self, slabs: SlabObjects, doubt: bool = False) -> None:
        from drgn import FaultError

        self.slabs = slabs
        self._doubt = doubt
        self._prog: Program = slabs.prog
        self._layout = slabs.pages.layout
        self._memory = Pages(slabs.prog.read, FaultError)

    def at(self, address: int) -> list[Place]:
        """Return everything that the address is, the nearest first. [] where nothing is mapped there."""
        found = [*self._object(address), *self._stack(address), *self._symbol(address), *self._percpu(address)]
        found += [*self._vmap(address), *self._struct_page(address), *self._page(address)]
        return found

    def brief(self, address: int) -> str:
        """Return the nearest of these in a few words. A direct-map address of a page with another name gets that."""
        other = self.own_address(address)
        places = self.at(other)
        if not places:
            return "nothing"
        text = places[0].text
        return f"{text} ({other:#x})" if other != address else text

    # The kinds of places.

    def _object(self, address: int) -> Iterator[Place]:
        found = self.slabs.object_at(address)
        if found is None and self.slabs.guarded.holds(address):
            yield Place("kfence", "in a page of KFENCE's pool that has no object: it guards others, or is free")
            return
        if found is None:
            slab = self.slabs.engine.in_slab(address)
            if slab is not None:
                cache = self.slabs.cache(slab[2])
                yield Place(
                    "slab", f"in the slab {slab[0]:#x} of {cache.name if cache else 'kmalloc'}, behind its objects"
                )
            return
        if found.cache is None:
            probably, offset = "probably " if self._doubt else "", address - found.address
            yield Place(
                "large", f"{probably}{offset:#x} into a block of kmalloc, {found.size} bytes in pages of its own"
            )
            return
        state = FREE_NAMES.get(found.state, "allocated")
        offset = address - found.address
        guarded = found.cache.guarded is not None
        before, behind = ("KFENCE's pattern",) * 2 if guarded else ("red zone", "red zone, tracks or padding")
        where = f"+{offset:#x}" if offset >= 0 else f"{-offset:#x} before its beginning ({before})"
        if offset >= found.size:
            where += f", behind its end ({behind})"
        state += ", guarded by KFENCE" if guarded else ""
        what = f"an object of {found.cache.name}, {found.size} bytes at {found.address:#x}, {where}, {state}"
        yield Place("object", what)
        if found.cache.name == "task_struct" and not found.free:
            task = self._tasks_by_address.get(found.address)
            if task is not None:
                yield Place("task", f"in the task_struct of pid {task.pid} ({task.comm})")

    def _stack(self, address: int) -> Iterator[Place]:
        index = bisect_right(self._stacks, (address, 1 << 64)) - 1
        if index < 0:
            return
        start, number = self._stacks[index]
        if address >= start + self._stack_size:
            return
        task = self._tasks[number]
        depth = f", {address - task.sp:#x} above its sp" if not task.on_cpu and address >= task.sp else ""
        if not task.on_cpu and address < task.sp:
            depth = f", {task.sp - address:#x} below its sp: not in use"
        yield Place("stack", f"on the stack of pid {task.pid} ({task.comm}){depth}")

    def _symbol(self, address: int) -> Iterator[Place]:
        if not self.is_freed(address):
            yield from self._named(address)

    def is_freed(self, address: int) -> bool:
        """Return whether the address lies in what the kernel freed after boot: its initialization code and data.

        Whoever has the page now has nothing to do with the symbols there. A page of the image is reserved until then.
        """
        if not self._init[0] <= address < self._init[1]:
            return False
        physical = self.slabs.pages.translate(address)
        kind = self.slabs.engine.kind(physical >> self._layout["page_bits"]) if physical is not None else None
        return kind not in ("reserved", "unknown")

    def _named(self, address: int) -> Iterator[Place]:
        """Yield the symbol, also of code that was freed since: a record of who allocated has such addresses."""
        try:
            symbol = self._prog.symbol(address)
        except (LookupError, ValueError, OverflowError):
            return
        offset = address - int(symbol.address)
        name = f"{symbol.name}+{offset:#x}" if offset else symbol.name
        yield Place("symbol", f"{name}{self._module(address)}")

    def _module(self, address: int) -> str:
        """Return " in the module NAME", or "" for the kernel itself or where drgn cannot tell."""
        try:
            module = self._prog.module(address)
        except (LookupError, AttributeError, ValueError):
            return ""
        return "" if module.name == "kernel" else f" in the module {module.name}"

    def _percpu(self, address: int) -> Iterator[Place]:
        found = self._percpu_symbols.at(address)
        if found is not None:
            yield Place("percpu", f"the per-CPU variable {found[0]} of CPU {found[1]}")

    def _vmap(self, address: int) -> Iterator[Place]:
        area = self._area(address)
        if area is None:
            return
        from drgn import FaultError

        start, end = int(area.va_start.value_()), int(area.va_end.value_())
        who = ""
        try:
            caller = int(area.vm.caller.value_()) if area.vm else 0
        except (FaultError, AttributeError):
            caller = 0
        if caller:
            named = next(self._named(caller), None)
            who = f", allocated by {named.text if named is not None else hex(caller)}"
        yield Place("vmap", f"in the vmap area {start:#x}-{end:#x}, +{address - start:#x}{who}")

    def _area(self, address: int) -> Optional[Object]:
        from drgn import FaultError
        from drgn.helpers.linux.mm import find_vmap_area

        try:
            area = find_vmap_area(self._prog, address)
            return area if area else None
        except (FaultError, LookupError, AttributeError, ValueError):
            return None

    def _struct_page(self, address: int) -> Iterator[Place]:
        base, size = self._layout["base"], self._layout["size"]
        frame, offset = divmod(address - base, size)
        kind = self.slabs.engine.kind(frame) if 0 <= frame < 1 << 52 else None
        if kind is not None:
            at = self.slabs.description["direct_map"] + (frame << self._layout["page_bits"]) & _WORD
            yield Place(
                "struct page",
                f"+{offset:#x} in the struct page of page frame {frame:#x} ({at:#x}: {KINDS[kind].title})",
            )

    def _page(self, address: int) -> Iterator[Place]:
        physical = self.slabs.pages.translate(address)
        if physical is None:
            return
        frame = physical >> self._layout["page_bits"]
        kind = self.slabs.engine.kind(frame)
        what = f'a page of the kind "{KINDS[kind].title}"' if kind is not None else "a page that is not RAM"
        page = self._layout["base"] + frame * self._layout["size"]
        yield Place("page", f"in {what}, physical address {physical:#x}, struct page {page:#x}")

    # What is made once.

    @cached_property
    def _tasks(self) -> list[Task]:
        try:
            return list(Tasks(self._prog, self._memory).all())
        except LookupError:
            return []

    @cached_property
    def _tasks_by_address(self) -> dict[int, Task]:
        return {task.address: task for task in self._tasks}

    @cached_property
    def _stack_size(self) -> int:
        try:
            return int(self._prog["THREAD_SIZE"].value_())
        except LookupError:
            return 0

    @cached_property
    def _stacks(self) -> list[tuple[int, int]]:
        """Return (lowest address, number of the task) of every stack, sorted."""
        return sorted((task.stack, number) for number, task in enumerate(self._tasks) if task.stack)

    @cached_property
    def _percpu_symbols(self) -> PerCpuSymbols:
        return PerCpuSymbols(self._prog)

    @cached_property
    def _init(self) -> tuple[int, int]:
        return symbol_range(self._prog, *_INIT) or (0, 0)

    # Other addresses of a page.

    def own_address(self, address: int) -> int:
        """Return the address by which the kernel knows a byte of the map of all memory: in its image, a stack, vmalloc.

        For all other bytes it is the same address.
        """
        physical = address - self.slabs.description["direct_map"] & _WORD
        first, length, virtual = self._image
        if first <= physical < first + length and not self.is_freed(virtual + physical - first):
            return virtual + physical - first
        bits = self._layout["page_bits"]
        kind = self.slabs.engine.kind(physical >> bits)
        if kind in ("stack", "vmalloc"):
            other = self._mapped.get(physical >> bits)
            return other + (physical & (1 << bits) - 1) if other is not None else address
        return address

    @cached_property
    def _image(self) -> tuple[int, int, int]:
        """Return (physical address, bytes, virtual address) of the kernel's image."""
        from drgnext.kernel.slabs.orphans import image_of

        try:
            first, last = image_of(self._prog)
        except LookupError:
            return 0, 0, 0
        return self.slabs.pages.translate(first) or 0, last + 1 - first, first

    @cached_property
    def _mapped(self) -> dict[int, int]:
        """Return the virtual address of each page frame of vmap areas, and so of stacks."""
        from drgn import FaultError
        from drgn.helpers.linux.mm import for_each_vmap_area

        found: dict[int, int] = {}
        page = 1 << self._layout["page_bits"]
        try:
            for area in for_each_vmap_area(self._prog):
                if not area.vm:
                    continue
                start, end = int(area.va_start.value_()), int(area.va_end.value_())
                for at in range(start, min(end, start + _MOST_PAGES * page), page):
                    physical = self.slabs.pages.translate(at)
                    if physical is not None:
                        found.setdefault(physical // page, at)
                    if len(found) > _MOST_PAGES:
                        return found
        except (FaultError, LookupError, AttributeError):
            pass
        return found
