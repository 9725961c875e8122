"""Function names, source lines, frame sizes and inlined functions of Go code, from the table that Go's linker makes.

The runtime needs the table to unwind, so that every Go program has it, also when it is stripped (-ldflags="-s -w").
Layouts: runtime/symtab.go and runtime/runtime2.go (struct _func), cmd/link/internal/ld/pcln.go, of Go 1.18 to 1.27.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words

MAGICS = {0xFFFFFFF0: 40, 0xFFFFFFF1: 44}  # of Go 1.18, 1.20; the size of struct _func (1.20 added startLine)
HEADER = 72  # bytes of struct pcHeader with 8-byte words
MOST_FUNCTIONS = 1 << 21
_MOST_NAME = 4096
_MOST_TABLE = 1 << 20  # bytes of one function's table of values
_MOST_RECORDS = 1 << 28  # bytes of all struct _func
_CHUNK = 512
_MOST_INLINED = 128  # functions that are inlined into each other at one place
_INLINE_INDEX = 2  # PCDATA_InlTreeIndex
_INLINE_TREE = 3  # FUNCDATA_InlTree
_TOP_FRAME, _WRITES_SP = 1, 2  # FuncFlagTopFrame, FuncFlagSPWrite
_CACHED = 1 << 17


class Function(NamedTuple):
    """A function: its name, its code ``[entry, end)``, and where the tables of its values are."""

    name: str
    entry: int
    end: int
    top: bool  # it has no caller
    writes_sp: bool  # it changes sp in a way that no table describes
    pcsp: int
    pcfile: int
    pcln: int
    unit: int  # where the files of its compilation unit begin in cutab
    inline_index: int  # table of the index in its inline tree; 0: no such table
    inline_tree: Optional[int]  # the tree's offset from go.func.*
    special: int  # funcID; 0 for most functions


class Place(NamedTuple):
    """A function and a line in it, as the runtime prints them. ``inlined``: it is inlined into the next place."""

    function: str
    file: Optional[str]
    line: Optional[int]
    inlined: bool
    wrapper: bool  # the compiler made it, to call another function


class Tables(NamedTuple):
    """Where the parts of a table are, as struct moduledata has them: (address, number of entries)."""

    magic: int
    quantum: int  # the smallest size of an instruction
    text: int
    etext: int
    names: tuple[int, int]
    units: tuple[int, int]
    files: tuple[int, int]
    values: tuple[int, int]
    functions: tuple[int, int]
    order: tuple[int, int]  # (entry, offset of its struct _func) of each function, and the end


class Pclntab:
    """The table of one program or library. Raises ValueError if its index is not in the dump or not in order."""

    def __init__(self, words: Words, tables: Tables) -> None:
        self.tables = tables
        self.gofunc: Optional[int] = None  # go.func.*: see proves_gofunc
        self._image = words.image
        address, count = tables.order
        data = self._peek(address, 8 * count - 4) if 1 < count <= MOST_FUNCTIONS else b""
        if len(data) != 8 * count - 4:
            raise ValueError("the index of functions is not in the dump")
        numbers = memoryview(data).cast("I")
        self._entries = numbers[::2]  # the last one is the end of the code
        self._offsets = numbers[1::2]
        if any(a > b for a, b in zip(self._entries, self._entries[1:])):
            raise ValueError("the index of functions is not in order")
        self._wrapper = self._find_wrapper()
        self._functions: dict[int, Optional[Function]] = {}
        self._names: dict[int, str] = {}
        self._places: dict[tuple[int, bool], list[Place]] = {}
        self._deltas: dict[int, Optional[int]] = {}

    def _find_wrapper(self) -> int:
        """Return the funcID of functions that the compiler made: the last one in every release. -1: no function."""
        start, length = self.tables.functions
        data = self._peek(start, length) if length <= _MOST_RECORDS else b""
        at = MAGICS[self.tables.magic] - 4
        most = max((data[offset + at] for offset in self._offsets if offset + at < len(data)), default=0)
        return most if 10 < most < 64 else -1

    def _peek(self, address: int, size: int) -> bytes:
        return self._image.read(address, size) if 0 <= address < 1 << 64 else b""

    def __len__(self) -> int:
        """Return the number of functions."""
        return len(self._offsets)

    def at(self, pc: int) -> Optional[Function]:
        """Return the function with the instruction at `pc`, or None."""
        if not self.tables.text <= pc < self.tables.etext:
            return None
        number = bisect_right(self._entries, pc - self.tables.text) - 1
        return self.numbered(number) if 0 <= number < len(self._offsets) else None

    def numbered(self, number: int) -> Optional[Function]:
        """Return a function by its number, in the order of addresses; None where its record is damaged."""
        if number not in self._functions:
            self._functions[number] = self._read(number)
        return self._functions[number]

    def is_entry(self, pc: int) -> bool:
        """Return whether a function begins at `pc`."""
        number = bisect_right(self._entries, pc - self.tables.text) - 1
        return 0 <= number < len(self._offsets) and self._entries[number] == pc - self.tables.text

    def _read(self, number: int) -> Optional[Function]:
        size = MAGICS[self.tables.magic]
        start, length = self.tables.functions
        offset = self._offsets[number]
        data = self._peek(start + offset, size) if offset + size <= length else b""
        if len(data) != size:
            return None
        fields = memoryview(data[:36]).cast("I")
        entry, name, pcsp, pcfile, pcln, tables, unit = (fields[n] for n in (0, 1, 4, 5, 6, 7, 8))
        flags, funcdata = data[size - 3], data[size - 1]
        if entry != self._entries[number] or tables > 64:
            return None
        rest = self._peek(start + offset + size, 4 * (tables + funcdata))
        more = memoryview(rest[: len(rest) // 4 * 4]).cast("I")
        inline = more[_INLINE_INDEX] if tables > _INLINE_INDEX and len(more) == tables + funcdata else 0
        tree = more[tables + _INLINE_TREE] if inline and funcdata > _INLINE_TREE else 0xFFFFFFFF
        text = self.tables.text
        return Function(
            self.name(name),
            text + entry,
            text + self._entries[number + 1],
            bool(flags & _TOP_FRAME),
            bool(flags & _WRITES_SP),
            pcsp,
            pcfile,
            pcln,
            unit,
            inline,
            None if tree == 0xFFFFFFFF else tree,
            data[size - 4],
        )

    def name(self, offset: int) -> str:
        """Return the name at an offset of the names; "" where none is."""
        if offset not in self._names:
            start, length = self.tables.names
            self._names[offset] = self._text(start + offset) if 0 <= offset < length else ""
        return self._names[offset]

    def _text(self, address: int) -> str:
        data = self._peek(address, 128)
        if b"\0" not in data:
            data = self._peek(address, _MOST_NAME)
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def value(self, table: int, function: Function, pc: int) -> Optional[int]:
        """Return the value of a function's table at `pc` (runtime.pcvalue): None where the table does not say.

        The table has pairs of varints: a zigzag difference of values, and a difference of pcs in instructions.
        """
        start, length = self.tables.values
        if not 0 < table < length:
            return None
        data, at = self._peek(start + table, min(_CHUNK, length - table)), 0
        value, where, first = -1, function.entry, True
        while True:
            if at + 20 > len(data) and table + len(data) < length:
                if len(data) >= _MOST_TABLE:
                    return None
                more = self._peek(start + table, min(2 * len(data), length - table))
                if len(more) <= len(data):
                    return None
                data = more
            change, at = _varint(data, at)
            if change is None or (change == 0 and not first):
                return None
            step, at = _varint(data, at)
            if step is None:
                return None
            first = False
            value += -(change >> 1) - 1 if change & 1 else change >> 1
            where += step * self.tables.quantum
            if pc < where:
                return value

    def sp_delta(self, function: Function, pc: int) -> Optional[int]:
        """Return how far sp is below its value at the function's entry, when it is at `pc`."""
        if pc not in self._deltas:
            if len(self._deltas) > _CACHED:
                self._deltas.clear()
            self._deltas[pc] = self.value(function.pcsp, function, pc)
        return self._deltas[pc]

    def places(self, function: Function, pc: int, exact: bool) -> list[Place]:
        """Return the function's line at `pc`, after those that are inlined there, innermost first.

        `exact` is false for a return address: then the instruction before it is looked up.
        """
        key = (pc, exact)
        if key not in self._places:
            if len(self._places) > _CACHED:
                self._places.clear()
            at = pc if exact or pc <= function.entry else pc - 1
            self._places[key] = self._find_places(function, at)
        return self._places[key]

    def _find_places(self, function: Function, at: int) -> list[Place]:
        places: list[Place] = []
        while len(places) < _MOST_INLINED:
            inlined = self._inlined(function, at)
            name, parent, special = inlined if inlined is not None else (function.name, None, function.special)
            places.append(Place(name, *self._line(function, at), parent is not None, special == self._wrapper))
            if parent is None:
                break
            at = parent
        return places

    def _line(self, function: Function, at: int) -> tuple[Optional[str], Optional[int]]:
        line = self.value(function.pcln, function, at)
        number = self.value(function.pcfile, function, at)
        start, count = self.tables.units
        if number is None or number < 0 or line is None or line < 0 or function.unit + number >= count:
            return None, None
        data = self._peek(start + 4 * (function.unit + number), 4)
        offset = int.from_bytes(data, "little")
        first, length = self.tables.files
        if len(data) != 4 or offset >= length:
            return None, None
        return self._text(first + offset) or None, line

    def _inlined(self, function: Function, at: int) -> Optional[tuple[str, int, int]]:
        """Return (name, pc of the call that was inlined, funcID) of the function that is inlined at `at`."""
        if self.gofunc is None or function.inline_tree is None:
            return None
        index = self.value(function.inline_index, function, at)
        if index is None or index < 0:
            return None
        entry = self.tree_entry(self.gofunc, function, index)
        if entry is None or not function.entry <= function.entry + entry[1] < function.end:
            return None
        return self.name(entry[0]), function.entry + entry[1], entry[2]

    def tree_entry(self, gofunc: int, function: Function, index: int) -> Optional[tuple[int, int, int]]:
        """Return (offset of the name, pc of the call from the entry, funcID) of an entry of its inline tree."""
        if function.inline_tree is None or index >= 1 << 20:
            return None
        # 1.18: parent i16, funcID u8, pad, file, line, func, parentPc
        # 1.20: funcID u8, pad, nameOff, parentPc, startLine
        size, name, special = (20, 12, 2) if self.tables.magic == 0xFFFFFFF0 else (16, 4, 0)
        data = self._peek(gofunc + function.inline_tree + size * index, size)
        if len(data) != size:
            return None
        numbers = memoryview(data).cast("I")
        return numbers[name // 4], numbers[name // 4 + 1], data[special]

    def proves_gofunc(self, gofunc: int, sample: Sequence[Function]) -> bool:
        """Return whether go.func.* begins at `gofunc`: the first entries of the inline trees of `sample` are right.

        An entry is right where a name begins at its offset, and its call lies in the function.
        """
        start, length = self.tables.names
        later = 0
        for function in sample:
            entry = self.tree_entry(gofunc, function, 0)
            if entry is None or not 0 <= entry[0] < length or entry[1] >= function.end - function.entry:
                return False
            if (entry[0] and self._peek(start + entry[0] - 1, 1) != b"\0") or not self.name(entry[0]):
                return False
            later += entry[0] > 0
        return 2 * later > len(sample)  # offset 0 is right, too, and so zeros prove nothing


def _varint(data: bytes, at: int) -> tuple[Optional[int], int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at
        shift += 7
    return None, at
