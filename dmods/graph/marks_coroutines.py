"""Frames of C++20 coroutines, by their own first words.

A frame begins with the functions that resume and destroy it. The symbols of the two end with ".actor" and ".destroy"
(gcc, cp/mangle.cc) or ".resume" and ".destroy" (LLVM, CoroSplit.cpp). At the final suspend point the first is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dmods import _engine
from dmods.graph.types.type_mark import Mark
from dmods.graph.types.type_name import TypeName
from dmods.target import Target

_RESUME, _ACTOR, _DESTROY = ".resume", ".actor", ".destroy"


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
