"""The control groups of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.reading import flat, number

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.stacks.tasks import Task
    from drgnext.kernel.stacks.threads import Threads
    from drgnext.kernel.system.reading import Reader

_MOST_GROUPS = 1 << 20
_MOST_DEPTH = 256
_MOST_NODES = 1 << 10
_FILE = 1  # LRU_GEN_FILE (include/linux/mmzone.h); 0 is anonymous memory
_ONLINE = 2  # CSS_ONLINE (include/linux/cgroup-defs.h)


class MemoryGroup(NamedTuple):
    """A memory cgroup. ``current``, ``limit``, ``peak`` and ``swap`` are pages; a limit of None is "max".

    ``online`` is false for a group that was removed, and that its pages keep alive. ``files`` are pages of files that
    can be dropped, without the groups below. ``failed`` is how often its limit was hit, ``oom`` how often the OOM
    killer was called for that, and ``killed`` how many of its processes were killed by it.
    """

    path: str
    current: int
    limit: Optional[int]
    peak: int
    swap: int
    failed: int
    processes: int
    online: bool
    address: int
    files: int = 0
    oom: int = 0
    killed: int = 0


def has_groups(reader: Reader) -> bool:
    """Return whether the kernel has memory cgroups (CONFIG_MEMCG, and not cgroup_disable=memory)."""
    root = reader.symbol("root_mem_cgroup")
    return root is not None and bool(root.value_())


def memory_groups(reader: Reader, threads: Threads) -> list[MemoryGroup]:
    """Return every memory cgroup, a parent before its children. A kernel without CONFIG_MEMCG has no memory cgroup."""
    root = reader.symbol("root_mem_cgroup")
    if root is None or not root.value_():
        return []
    tasks = _tasks(reader, threads)
    found = []
    for css in _descendants(reader, root.css.address_of_(), 0):
        with reader.reading("memory cgroups"):
            found.append(_describe(reader, css, tasks))
    return found


def group_of(reader: Reader, threads: Threads, task: Task, groups: Sequence[MemoryGroup]) -> Optional[MemoryGroup]:
    """Return the memory cgroup of a task, one of ``groups``; None without one."""
    number_of = reader.constant("memory_cgrp_id")
    if number_of is None:
        return None
    with reader.reading("cgroups of tasks"):
        css = threads.task_object(task).cgroups.subsys[number_of].value_()
        own = css - reader.offset("struct mem_cgroup", "css")
        return next((group for group in groups if group.address == own), None)
    return None


def narrowest(group: MemoryGroup, groups: Sequence[MemoryGroup]) -> Optional[MemoryGroup]:
    """Return the group with the lowest limit among a group and those above it; None if no one has a limit."""
    above = [each for each in groups if f"{group.path}/".startswith(each.path.rstrip("/") + "/")]
    return min((each for each in above if each.limit is not None), key=lambda each: each.limit or 0, default=None)


def _descendants(reader: Reader, css: Object, depth: int, seen: Optional[set[int]] = None) -> Iterator[Object]:
    seen = seen if seen is not None else set()
    if css.value_() in seen or depth > _MOST_DEPTH or len(seen) > _MOST_GROUPS:
        reader.note(f"the tree of memory cgroups is damaged at {css.value_():#x}: groups may be missing")
        return
    seen.add(css.value_())
    yield css
    head = css.children.address_of_().value_()
    for child in reader.members(head, "struct cgroup_subsys_state", "sibling", "memory cgroups"):
        yield from _descendants(reader, child, depth + 1, seen)


def _describe(reader: Reader, css: Object, tasks: Counter[int]) -> MemoryGroup:
    group = reader.pointer("struct mem_cgroup", css.value_() - reader.offset("struct mem_cgroup", "css"))
    page_size = 1 << int(reader.prog["PAGE_SHIFT"])
    limit = int(group.memory.max)
    return MemoryGroup(
        _path(reader, css.cgroup.kn),
        number(group.memory.usage),
        None if limit >= ((1 << 63) - 1) // page_size else limit,  # PAGE_COUNTER_MAX
        int(group.memory.watermark),
        _swap(reader, css, group),
        _failed(reader, css, group),
        tasks[css.value_()],
        bool(int(css.flags) & _ONLINE),
        group.value_(),
        _files(reader, group),
        _events(reader, group, "MEMCG_OOM"),
        _events(reader, group, "MEMCG_OOM_KILL"),
    )


def _is_first_version(reader: Reader, css: Object) -> bool:
    """Return whether a group is of cgroup v1: memory has a hierarchy of its own there."""
    unified = reader.symbol("cgrp_dfl_root")
    return unified is not None and css.cgroup.root.value_() != unified.address_


def _swap(reader: Reader, css: Object, group: Object) -> int:
    """Return the pages in swap. In cgroup v1 the counter has memory and swap (struct mem_cgroup.memsw, a union)."""
    if _is_first_version(reader, css) and reader.has_member(group[0], "memsw"):
        return max(0, number(group.memsw.usage) - number(group.memory.usage))
    return number(group.swap.usage)


def _failed(reader: Reader, css: Object, group: Object) -> int:
    """Return how often the limit was hit: memory.failcnt, or in cgroup v2 the line "max" of memory.events.local.

    Since 6.13 the counters of cgroup v2 do not count failures (mm/page_counter.c, track_failcnt).
    """
    if _is_first_version(reader, css):
        return int(group.memory.failcnt)
    return _events(reader, group, "MEMCG_MAX")


def _files(reader: Reader, group: Object) -> int:
    """Return the pages of files on the lists for reclaim. Each node and zone has lists of its own.

    With generations (CONFIG_LRU_GEN), lru_gen_update_size() (include/linux/mm_inline.h) counts the pages elsewhere.
    """
    from drgn.helpers.linux.mmzone import for_each_online_pgdat

    lists = [reader.constant(name) for name in ("LRU_INACTIVE_FILE", "LRU_ACTIVE_FILE")]
    count, zones = reader.constant("NR_LRU_LISTS"), reader.constant("__MAX_NR_ZONES")
    total = 0
    with reader.reading("lists of memory cgroups"):
        for node in islice(for_each_online_pgdat(reader.prog), _MOST_NODES):
            own = group.nodeinfo[int(node.node_id)]
            if not own.value_() or not count or not zones:
                continue
            sizes = flat(own.lru_zone_size)  # by zone, by list
            total += sum(sum(sizes[each::count]) for each in lists if each is not None)
            if reader.has_member(own.lruvec, "lrugen"):
                pages = flat(own.lruvec.lrugen.nr_pages)  # by generation, anonymous or of files, by zone
                total += sum(max(0, each) for at, each in enumerate(pages) if at // zones % 2 == _FILE)
    return total


def _events(reader: Reader, group: Object, name: str) -> int:
    """Return a line of memory.events.local."""
    index = reader.constant(name)
    if index is None or not reader.has_member(group[0], "memory_events_local"):
        return 0
    return max(0, int(group.memory_events_local[index].counter))


def _path(reader: Reader, node: Object) -> str:
    """Return the path of a ``struct kernfs_node *``. Since 6.15 its parent is called __parent."""
    parent = "parent" if reader.has("struct kernfs_node", "parent") else "__parent"
    parts: list[str] = []
    while node.value_() and len(parts) < _MOST_DEPTH:
        above = node.member_(parent)
        if not above.value_():
            break
        parts.append(reader.string(node.name, 256))
        node = above
    return "/" + "/".join(reversed(parts))


def _tasks(reader: Reader, threads: Threads) -> Counter[int]:
    """Return the number of processes in each group, by the address of its css."""
    found: Counter[int] = Counter()
    number_of = reader.constant("memory_cgrp_id")
    if number_of is None:
        return found
    for task in threads.tasks.all():
        if task.pid == task.tgid and task.pid > 0:
            with reader.reading("cgroups of tasks"):
                found[threads.task_object(task).cgroups.subsys[number_of].value_()] += 1
    return found
