"""Source lines and inlined functions of code addresses, from debug information on this machine.

The debug information is in the program or library itself, or in a separate file. A separate file is found as gdb finds
it: by build-id, by ``.gnu_debuglink``, and in the cache of debuginfod clients. dmods downloads nothing unless the user
asked for it (dmods.modules.debuginfod). No file is opened before somebody asks for an address in its module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from dmods._engine import Lines
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.modules.by_address import ModulesByAddress, modules_by_address
from dmods.modules.debuginfod import debuginfod_file, told
from dmods.modules.golang.moduledata import go_places_at
from dmods.target import Module, Target

# Addresses that are looked up. A program has fewer on its stacks; in a crafted core every frame may be another address,
# and each lookup takes up to a millisecond.
_MAX_LOOKUPS = 50_000
_MAX_NOTES = 8  # one line for each file whose debug information is damaged or does not match


#: What knows lines where debug information does not.
Places = Callable[[int], "list[SourceFrame]"]


class SourceFrame(NamedTuple):
    """A function at an address, and the line in it. What the debug information does not say is None.

    ``file`` is the path that the compiler was given. ``line`` counts from 1.
    """

    function: Optional[str]
    file: Optional[str]
    line: Optional[int]


class SourceLines:
    """The source lines of one process's modules.

    ``debug_roots`` are folders such as /usr/lib/debug; earlier ones come first. ``notes`` gets a line for what is wrong
    with debug information, as soon as it is looked at. ``other`` knows lines without it: the table of a Go program.
    """

    def __init__(
        self, modules: ModulesByAddress, debug_roots: Sequence[str], notes: list[str], other: Optional[Places] = None
    ) -> None:
        self._modules = modules
        self._notes = notes
        self._other = other
        self._noted: set[str] = set()
        self._roots = list(dict.fromkeys(debug_roots))
        self._lines: dict[int, Optional[Lines]] = {}
        self._frames: dict[int, list[SourceFrame]] = {}

    def frames_at(self, address: int, exact: bool) -> list[SourceFrame]:
        """Return the functions at `address`, innermost first; [] without debug information.

        The last one is the function itself; those before it are inlined. Its line is that of the call that was inlined.
        `exact` is false for a return address: then the instruction before it is looked up, which is the call.
        """
        at = address if exact else address - 1
        frames = self._frames.get(at)
        if frames is None:
            if len(self._frames) >= _MAX_LOOKUPS:
                self._note(f"only the first {_MAX_LOOKUPS} addresses are looked up")
                return []
            frames = self._frames[at] = self._find(at) or (self._other(at) if self._other is not None else [])
        return frames

    def _find(self, address: int) -> list[SourceFrame]:
        module = self._modules.at(address)
        if module is None:
            return []
        if module.start not in self._lines:
            self._lines[module.start] = _open(module, self._roots)
        lines = self._lines[module.start]
        if lines is None:
            return []
        frames = [SourceFrame(*frame) for frame in lines.find([address - module.bias])[0]]
        for problem in (*lines.problems, *told()):
            self._note(problem)
        return frames

    def _note(self, problem: str) -> None:
        if problem not in self._noted and len(self._noted) < _MAX_NOTES:
            self._noted.add(problem)
            self._notes.append(f"source lines: {problem}")


def _open(module: Module, roots: Sequence[str]) -> Optional[Lines]:
    """Return what answers for the module, or None where no file can."""
    # A program that the user named is believed although its build-id differs: its symbols are used, too.
    named = module.file is not None and module.problem is not None
    build_id = None if named or module.build_id is None else bytes.fromhex(module.build_id)
    if module.file is None and build_id is None:
        return None
    lines = Lines(module.file, list(roots), build_id)
    if lines.debug_file is not None or module.build_id is None:
        return lines
    cached_file = debuginfod_file(module.build_id)
    return Lines(cached_file, list(roots), build_id) if cached_file is not None else lines


@cached
def source_lines(target: Target) -> SourceLines:
    """Return the source lines of the process. They are found once for each state of it."""

    def of_go(address: int) -> list[SourceFrame]:
        return [SourceFrame(place.function, place.file, place.line) for place in go_places_at(target, address)]

    return SourceLines(modules_by_address(target), target.debug_roots, target.notes, of_go)
