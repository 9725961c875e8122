"""The frames of a crash as other machines see them: by build-id and offset, without addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.modules.lines import source_lines
from dmods.process.addresses import module_at
from dmods.process.unwind import Frame
from dmods.target import Target
from dmods.triage.names import function_of, is_runtime

_MOST = 64


class Place(NamedTuple):
    """A place in a program's file.

    ``offset`` is the address in the file (address - bias) of the instruction that ran or of the call. ``function`` is
    None where no symbol says it; ``inlined`` are the functions that were inlined there, innermost first. ``runtime``:
    a C or C++ runtime, an allocator or a linker stands there.
    """

    module: Optional[str]
    build_id: Optional[str]
    offset: Optional[int]
    function: Optional[str]
    inlined: Sequence[str]
    runtime: bool


def places(target: Target, frames: Sequence[Frame], names: Sequence[str]) -> Iterator[Place]:
    """Yield the places of the frames, at most 64. ``names`` are the frames' names, as a stack shows them."""
    lines = source_lines(target)
    for frame, name in zip(frames[:_MOST], names):
        at = frame.code_address
        module = module_at(target, at)
        inlined = [each.function for each in lines.frames_at(at, frame.exact)[:-1] if each.function]
        function = function_of(name)
        known = module is not None and not function.startswith("0x")
        yield Place(
            module.name if module else None,
            module.build_id if module else None,
            at - module.bias if module else None,
            function if known else None,
            inlined,
            is_runtime(name),
        )
