"""Names that language runtimes give to what is in a heap.

CPython: objects, modules, classes and variables (engine/core/src/python/survey.rs). Go: the types of objects
(runtimes/golang/objects.py).
"""

from __future__ import annotations

from typing import Optional

from dmods._engine import Labels, PythonNames, find_python_names, python_labels
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.graph.types.type_name import TypeName
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.runtimes.python.find import find_python
from dmods.target import Target

_GO_TEXT = "string"  # the bytes of one: as any text, it has a shape


@cached
def python_names(target: Target) -> Optional[PythonNames]:
    """Return what the heap has of CPython; None without it. It is found once for each state of the target."""
    python = find_python(target).python
    heap = find_heap(target)
    if python is None or not heap.found:
        return None
    with Progress("reading objects") as bar:
        minor, links = python.layout.version[1], heap.index.collector.links
        return find_python_names(heap.marks.engine, minor, links, lambda done: bar.update(done, 0))


def python_types(heap: ProcessHeap) -> tuple[Labels, dict[tuple[int, int, bool, int], TypeName]]:
    """Return labels for the blocks that have objects of CPython, and the name for each key of a label."""
    found, python = python_names(heap.target), find_python(heap.target).python
    if found is None or python is None:
        return Labels([]), {}
    labels, kinds = python_labels(heap.marks.engine, found)
    names: list[Optional[TypeName]] = []
    for address, part in kinds:
        kind = python.objects.type_at(address)
        text = kind.name + (f" ({part})" if part else "") if kind is not None else ""
        names.append(TypeName(text, "Python type", "proven") if text else None)
    return labels, {key: name for key, _count in labels.sizes() if (name := names[key[0]]) is not None}


def go_names(heap: ProcessHeap) -> tuple[Labels, dict[tuple[int, int, bool, int], TypeName]]:
    """Return labels for the objects of Go whose type is known, and the name for each key of a label."""
    if not any(one.name == "Go" for one in heap.heaps):
        return Labels([]), {}
    from dmods.runtimes.golang.objects import go_types

    types = go_types(heap.target)
    if types is None:
        return Labels([]), {}
    labels, texts = types.labels()
    names = {key: TypeName(texts[key[0]], "Go type", "proven") for key, _count in labels.sizes()}
    return labels, {key: name for key, name in names.items() if name.text != _GO_TEXT}
