"""The types that Go's runtime gives the objects of its heap: see runtimes/golang/objects.py."""

from __future__ import annotations

from dmods._engine import Labels
from dmods.graph.types.type_name import TypeName
from dmods.heap.process_heap import ProcessHeap

_TEXT = "string"  # the bytes of one: as any text, it has a shape


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
    return labels, {key: name for key, name in names.items() if name.text != _TEXT}
