"""The locations of a profile: code addresses with functions, source lines and mappings."""

from __future__ import annotations

from typing import Optional

from dmods._engine import demangle
from dmods.modules.by_address import ModulesByAddress, modules_by_address
from dmods.modules.lines import SourceFrame, source_lines
from dmods.profile.model import TRUNCATED, Line, Location, Mapping
from dmods.target import AddressRange, Module, Target

_DELETED = " (deleted)"


class Locations:
    """Makes the locations of one process. Each address is looked up once.

    ``all`` and ``mappings`` are the lists that the indices count in.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._modules: ModulesByAddress = modules_by_address(target)
        self._lines = source_lines(target)
        self.all: list[Location] = []
        self.mappings: list[Mapping] = []
        self._pieces: dict[int, int] = {}
        self._found: dict[int, int] = {}
        self._named: dict[str, int] = {}
        program = next((m for m in target.modules() if m.path == target.executable), None)
        code = next((piece for piece in program.ranges if "x" in piece.flags), None) if program is not None else None
        if program is not None and code is not None:
            self._mapping(program, code)  # pprof takes the first mapping for the program

    def at(self, address: int, exact: bool) -> int:
        """Return the index of the location of a frame. `exact` is false for a return address: it lies behind the call.

        The address of the location is then one less, so that it lies in the call (pprof, proto/profile.proto).
        """
        inside = address if exact or not address else address - 1
        if inside not in self._found:
            self._found[inside] = len(self.all)
            self.all.append(self._location(inside))
        return self._found[inside]

    def named(self, name: str) -> int:
        """Return the index of a location that is no code: a holder of blocks, or TRUNCATED."""
        if name not in self._named:
            self._named[name] = len(self.all)
            self.all.append(Location(0, 0, (Line(name, name),)))
        return self._named[name]

    def truncated(self) -> int:
        """Return the index of the location that stands for frames that nobody recorded."""
        return self.named(TRUNCATED)

    def finished(self) -> list[Mapping]:
        """Return the mappings with flags that say what was found for all locations in them."""
        for number, mapping in enumerate(self.mappings, 1):
            here = [one.lines for one in self.all if one.mapping == number]
            # A reader looks up again what lacks a function. Startup code has no lines, whoever looks it up.
            functions = bool(here) and all(lines and all(line.function for line in lines) for lines in here)
            known = [line for lines in here for line in lines if functions]
            files, numbers = any(line.file for line in known), any(line.line for line in known)
            self.mappings[number - 1] = mapping._replace(
                functions=functions, files=files, lines=numbers, inlined=numbers
            )
        return self.mappings

    def _location(self, address: int) -> Location:
        module = self._modules.at(address)
        number = 0
        if module is not None:
            piece = next((piece for piece in module.ranges if address in piece), None)
            number = self._mapping(module, piece) if piece is not None else 0
        symbol = self._target.symbol_at(address)
        frames = self._lines.frames_at(address, exact=True)
        if not frames:
            lines = (Line(demangle(symbol.name), symbol.name),) if symbol is not None else ()
            return Location(number, address, lines)
        *inlined, own = frames
        outer = _line(own, symbol.name if symbol is not None else None)
        found = (*(_line(frame, None) for frame in inlined), *([outer] if outer is not None else []))
        return Location(number, address, tuple(line for line in found if line is not None))

    def _mapping(self, module: Module, piece: AddressRange) -> int:
        if piece.start not in self._pieces:
            path = module.path[: -len(_DELETED)] if module.path.endswith(_DELETED) else module.path
            build_id = (module.build_id or "").lower()
            self.mappings.append(Mapping(piece.start, piece.end, piece.offset, path, build_id))
            self._pieces[piece.start] = len(self.mappings)
        return self._pieces[piece.start]


def _line(frame: SourceFrame, symbol: Optional[str]) -> Optional[Line]:
    """Return a function with its line. The debug information's name comes first: a symbol may be an alias."""
    name = frame.function or (demangle(symbol) if symbol is not None else "")
    return Line(name, symbol or name, frame.file or "", frame.line or 0) if name else None
