"""Types that something beside a block's own first word tells: its holder, or two functions at its start.

A *mark* (`type_name.Mark`) is the address of a function or of a vtable. The engine finds all marks in one pass over the
memory in use (engine/core/src/graph/labels.rs). `cxx_holders` and `rust_vtables` know the values, and
this module those of coroutines. A stripped program has none.

A frame of a C++20 coroutine begins with the functions that resume and destroy it. The symbols of the two end with
".actor" and ".destroy" (gcc, cp/mangle.cc) or ".resume" and ".destroy" (LLVM, CoroSplit.cpp). At the final suspend
point the first is 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.graph.types.type_name import Mark, TypeName
from dmods.heap.heap import ProcessHeap
from dmods.target import Target

#: The key of a label, and the name for each: see ``_engine.Labels.sizes``.
Key = tuple[int, int, bool, int]
Names = dict[Key, TypeName]
_SLACK = 16  # bytes: glibc leaves a rest that is too small for a chunk in the block (malloc.c, MINSIZE)
_LEAST_USABLE = 40  # bytes: the smallest chunk, with such a rest
_SELDOM = 5  # one in so many: blocks of a type that look like fewer of them are left out
_MOST_MARKS = 1 << 16
_RESUME, _ACTOR, _DESTROY = ".resume", ".actor", ".destroy"


@cached
def own_marks(target: Target) -> list[Mark]:
    """Return the marks that stand in the blocks themselves."""
    return different(coroutine_marks(target))


@cached
def find_marks(target: Target) -> list[Mark]:
    """Return the marks of the target's modules."""
    from dmods.graph.types.cxx_holders import cxx_marks, pool_marks  # leaks ask only for marks that stand in the blocks
    from dmods.graph.types.rust_vtables import rust_marks

    return different((*coroutine_marks(target), *cxx_marks(target), *pool_marks(target), *rust_marks(target)))


def different(marks: Iterable[Mark]) -> list[Mark]:
    """Return the marks without those whose value two types share: it says nothing."""
    by_value: dict[int, list[Mark]] = defaultdict(list)
    for mark in marks:
        by_value[mark.value].append(mark)
    return [same[0] for same in by_value.values() if len(set(same)) == 1][:_MOST_MARKS]


def labelled(
    heap: ProcessHeap, kinds: _engine.Kinds, index: int, direct: bool
) -> Optional[tuple[_engine.Labels, Names, set[Key]]]:
    """Return the blocks of a heap that marks name, their names, and where an object is the first part of what is named.

    Return None where the program has no marks.

    ``kinds`` are the kinds that contents alone give, and ``index`` is the heap's number there. With ``direct``, only
    direct leaks that say so themselves.
    """
    marks = own_marks(heap.target) if direct else find_marks(heap.target)
    if not marks:
        return None
    rows = [
        (mark.value, number, mark.pointer, mark.beside_at, mark.beside, mark.room, mark.width)
        for number, mark in enumerate(marks)
    ]
    inside, outside = list(heap.owned), [] if direct else heap.marks.ranges
    with Progress("looking for holders") as bar:
        found = _engine.find_labels(
            heap.marks.engine, heap.words.size, inside, outside, rows, direct, lambda done: bar.update(done, 0)
        )
    labels = kinds.take_kinds(index, heap.marks.engine, found) if len(found) and not direct else found
    return labels, *_names(heap, labels, marks)


def _has_equal_sizes(heap: ProcessHeap) -> bool:
    """Return whether no block of a type is larger than others: an allocator with headers gives what is left over."""
    used = [one for one in heap.heaps if one.is_used]
    return any(one.equal_sizes for one in used) and not any(one.has_headers for one in used)


def _names(heap: ProcessHeap, labels: _engine.Labels, marks: Sequence[Mark]) -> tuple[Names, set[Key]]:
    """Return the names of blocks whose sizes and contents fit, and the keys that most blocks of a type have.

    All values of a type have one size, and most look alike. A holder that an earlier use of the memory left behind
    leads to blocks of other kinds. Buffers have any size and content: the engine compared their holder's capacity.
    """
    slack = 0 if _has_equal_sizes(heap) else _SLACK
    sizes: dict[int, Counter[int]] = defaultdict(Counter)
    kinds: dict[int, Counter[int]] = defaultdict(Counter)
    for (label, size, _counted, kind), count in labels.sizes():
        sizes[label][size] += count
        kinds[label][kind] += count
    names: Names = {}
    usual: set[Key] = set()
    for key, _count in labels.sizes():
        label, size, counted, kind = key
        mark = marks[label]
        name: Optional[TypeName] = mark.name
        if mark.room:
            names[key] = mark.name
            continue
        if mark.size is not None:
            name = _sized(mark, size, counted, heap.words.size)
        elif abs(size - _usual(sizes[label])) > slack:
            name = None
        if mark.pointer and kinds[label][kind] * _SELDOM < sum(kinds[label].values()):
            name = None
        if name is not None:
            names[key] = name
            if mark.pointer and 2 * kinds[label][kind] > sum(kinds[label].values()):
                usual.add(key)
    return names, usual


def _usual(sizes: Counter[int]) -> int:
    return max(sizes, key=lambda size: (sizes[size], -size))


def _sized(mark: Mark, usable: int, counted: bool, word: int) -> Optional[TypeName]:
    """Return the name that the usable size allows, or None."""
    assert mark.size is not None
    alone = _fits(mark.size, usable)
    if mark.counted is None or not counted:
        return mark.name if alone else None
    both = mark.size + 2 * word
    if _fits(both, usable) and not (alone and _rounded(mark.size, word) == usable):
        return mark.counted
    return mark.name if alone else None


def _fits(size: int, usable: int) -> bool:
    """Return whether malloc may give ``usable`` bytes for ``size``. glibc rounds by 16, jemalloc by a quarter."""
    return size <= usable <= max(_LEAST_USABLE, size + 2 * _SLACK - 1, size + size // 4 + _SLACK)


def _rounded(size: int, word: int) -> int:
    """Return what glibc gives for a request (malloc.c, request2size)."""
    return max(3 * word, (size + word + 15) // 16 * 16 - word)


def coroutine_marks(target: Target) -> Iterator[Mark]:
    """Yield the marks of coroutines: they stand in the frames themselves."""
    symbols = target.symbols_with((_RESUME, _ACTOR, _DESTROY))
    resumes: dict[str, list[int]] = defaultdict(list)
    for symbol in symbols:
        for end in (_RESUME, _ACTOR):
            if symbol.name.endswith(end):
                resumes[symbol.name[: -len(end)]].append(symbol.address)
    for symbol in symbols:
        resume = resumes.get(symbol.name[: -len(_DESTROY)], ()) if symbol.name.endswith(_DESTROY) else ()
        if len(resume) == 1:
            name = TypeName(f"coroutine {_engine.demangle(symbol.name)}", "coroutine", "likely")
            yield Mark(symbol.address, name, 0, -1, resume[0])
