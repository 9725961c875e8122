"""The writable memory of modules, their .bss included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.base.ranges import Ranges
from dmods.modules.elf import MAGIC, page_up
from dmods.modules.find import writable_segments
from dmods.target import AddressRange, Module, Target

if TYPE_CHECKING:
    from dmods._engine import Image


def module_data(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the writable memory of each module, its .bss included.

    These are gapless stretches of mappings, as far as the program headers reach. The break begins at the end of the
    program's .bss, unless the kernel randomises it.
    """
    image, modules, segments = target.image(), target.modules(), Ranges(writable_segments(target))
    paths = {module.path for module in modules}
    stretch: Optional[list[int]] = None
    for mapping in target.mappings():
        if stretch is not None and mapping.start == stretch[1] and "w" in mapping.flags and mapping.path is None:
            known = [page_up(end) for _start, end in segments.within(stretch[0], mapping.end)]
            stretch[1] = max(stretch[1], min([mapping.end, *known[-1:]]))
            continue
        if stretch is not None:
            yield stretch[0], stretch[1]
            stretch = None
        if "w" in mapping.flags and _of_module(image, mapping, modules, paths):
            stretch = [mapping.start, mapping.end]
    if stretch is not None:
        yield stretch[0], stretch[1]


def _of_module(image: Image, mapping: AddressRange, modules: Sequence[Module], paths: set[str]) -> bool:
    """Return whether a mapping may belong to a module.

    It does within a module's extent (data that is only .bss has no file). A mapping of a file does, unless the file is
    known to be no program (Emacs maps its dump of 14 MB). `paths` are those of the modules.
    """
    if mapping.path is None:
        return any(module.start <= mapping.start < module.end for module in modules)
    if mapping.path in paths:
        return True
    header = image.read(max(0, mapping.start - mapping.offset), len(MAGIC))
    return len(header) < len(MAGIC) or header == MAGIC
