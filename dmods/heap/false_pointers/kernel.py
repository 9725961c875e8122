"""Text that the kernel writes onto the first stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.search import Search
from dmods.modules.auxv import AT_EXECFN, AT_RANDOM
from dmods.process.mappings import mapping_at
from dmods.target import Target

_LONGEST_NAME = 4096  # PATH_MAX


def execve_text(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the text of the arguments and the environment."""
    text = execve_text_range(search.target)
    if text is not None:
        yield text


def execve_text_range(target: Target) -> Optional[tuple[int, int]]:
    """Return the range that the kernel writes above the auxiliary vector, on the first thread's stack.

    It holds random bytes, the name of the platform, the arguments, the environment and the name of the program
    (fs/binfmt_elf.c, create_elf_tables). A program that writes there writes text. None where the stack is not known.
    """
    start, end = target.auxv.get(AT_RANDOM, 0), target.auxv.get(AT_EXECFN, 0)
    stack = mapping_at(target, start)
    if stack is None or not start < end < stack.end:
        return None
    name = target.image().read(end, min(_LONGEST_NAME, stack.end - end))
    return start, end + len(name.partition(b"\0")[0])
