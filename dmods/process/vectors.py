"""The vector and floating-point registers of a thread: where they lie in a dump, and what they may point to.

A compiler moves pointers through them, two at a time, and atomic operations of i386 pass through the x87 unit. So any
aligned word of them may be a pointer. The layouts are those of the kernel's notes:

* x86: FXSAVE (Intel SDM, volume 1, table 10-2), XSAVE in its standard form (13.4), and FSAVE for i386. The place of a
  component after AVX depends on the processor.
* AArch64: arch/arm64/include/uapi/asm/ptrace.h (user_fpsimd_state, user_sve_header, user_za_header).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.target import Arch

# include/uapi/linux/elf.h
NT_PRFPREG, NT_PRXFPREG, NT_X86_XSTATE, NT_X86_XSAVE_LAYOUT = 2, 0x46E62B7F, 0x202, 0x205
NT_ARM_SVE, NT_ARM_SSVE, NT_ARM_ZA, NT_ARM_ZT = 0x405, 0x40B, 0x40C, 0x40D
X86_NOTES = frozenset({NT_PRFPREG, NT_PRXFPREG, NT_X86_XSTATE})
ARM_NOTES = frozenset({NT_PRFPREG, NT_ARM_SVE, NT_ARM_SSVE, NT_ARM_ZA, NT_ARM_ZT})

_FXSAVE, _FSAVE, _XSAVE_HEADER, _FPSIMD, _SVE_HEADER = 512, 108, 64, 528, 16
_XCR0_AT = 464  # the first of the bytes for software: the kernel writes the enabled components there
_COMPACTED = 1 << 63  # in XCOMP_BV: the form of XSAVEC, which no note has
_MOST = 1 << 17  # bytes of a note that are read: ZA has at most 64 KiB, the other registers 12 KiB
_PRINTED = bytes((*b"\t\n\r", *range(32, 127)))
_NO_INTEGER = 0x7FFF  # the exponent of infinities and NaNs; an MMX instruction sets it

# Components of XSAVE: their numbers (SDM 13.1; APX: "Intel Advanced Performance Extensions", 3.1.4).
_AVX, _OPMASK, _ZMM_HIGH, _ZMM_16, _TILES, _APX = 2, 5, 6, 7, 18, 19


class Place(NamedTuple):
    """The place of a component in an XSAVE area."""

    offset: int
    size: int


Layout = Mapping[int, Place]

# Two layouts are in use (CPUID leaf 0xD). AMD's processors have no room for the bounds registers (MPX).
_LAYOUTS: tuple[Layout, ...] = (
    {
        _AVX: Place(576, 256),
        3: Place(960, 64),
        4: Place(1024, 64),
        _OPMASK: Place(1088, 64),
        _ZMM_HIGH: Place(1152, 512),
        _ZMM_16: Place(1664, 1024),
        9: Place(2688, 8),
        17: Place(2752, 64),
        _TILES: Place(2816, 8192),
        _APX: Place(960, 128),
    },
    {
        _AVX: Place(576, 256),
        _OPMASK: Place(832, 64),
        _ZMM_HIGH: Place(896, 512),
        _ZMM_16: Place(1408, 1024),
        9: Place(2432, 8),
    },
)


class VectorRegisters(Mapping[str, bytes]):
    """The registers by name, each with its bytes, lowest first. Registers that are 0 are left out.

    A vector register has the name of its widest form: "zmm3" holds xmm3 and ymm3. A register of the x87 unit ("st0")
    has ten bytes. Where an XSAVE area has an unknown layout, its rest is one register, "xsave".

    They are decoded on first use, from the notes that were added.
    """

    __slots__ = ("_arch", "_layout", "_notes", "_values")

    def __init__(self, arch: Arch, layout: Layout) -> None:
        """Begin without a note. `layout` is what the dump says of XSAVE's components; it may be filled later."""
        self._arch = arch
        self._layout = layout
        self._notes: dict[int, tuple[int, bytes]] = {}
        self._values: Optional[dict[str, bytes]] = None

    def add(self, kind: int, desc: bytes) -> Optional[str]:
        """Take a note of the thread. Return what is wrong with it, or None. Notes of other kinds change nothing."""
        if kind not in (ARM_NOTES if self._arch.name == "aarch64" else X86_NOTES):
            return None
        if len(desc) < _least(kind, self._arch):
            return "the vector registers of a thread are cut short in the core"
        # Most of an XSAVE area is zeros, and a core may have 10,000 threads.
        self._notes.setdefault(kind, (min(len(desc), _MOST), desc[:_MOST].rstrip(b"\0")))
        self._values = None
        return None

    @property
    def known(self) -> bool:
        """Return whether the dump has the registers of this thread."""
        return bool(self._notes)

    def _note(self, kind: int) -> bytes:
        size, data = self._notes.get(kind, (0, b""))
        return data.ljust(size, b"\0")

    def _decoded(self) -> dict[str, bytes]:
        if self._values is None:
            found = self._of_arm() if self._arch.name == "aarch64" else self._of_x86()
            self._values = {name: data for name, data in found if data.strip(b"\0")}
        return self._values

    def _of_x86(self) -> Iterator[tuple[str, bytes]]:
        wide = self._arch.word == 8
        area = self._note(NT_X86_XSTATE) or self._note(NT_PRXFPREG) or self._note(NT_PRFPREG)
        return of_fsave(area) if len(area) < _FXSAVE else of_xsave(area, wide, self._layout)

    def _of_arm(self) -> Iterator[tuple[str, bytes]]:
        sve = [self._note(kind) for kind in (NT_ARM_SVE, NT_ARM_SSVE)]
        vectors = [dict(of_sve(note)) for note in sve if note]
        if not any(vectors):
            vectors.append(dict(of_fpsimd(self._note(NT_PRFPREG))))
        for one in vectors:
            yield from one.items()
        za, zt = self._note(NT_ARM_ZA), self._note(NT_ARM_ZT)
        if za:
            yield from of_za(za)
        if zt:
            yield "zt0", zt

    def __getitem__(self, name: str) -> bytes:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())


def _least(kind: int, arch: Arch) -> int:
    """Return the least size of a note."""
    if arch.name == "aarch64":
        return _FPSIMD if kind == NT_PRFPREG else 64 if kind == NT_ARM_ZT else _SVE_HEADER
    if kind == NT_X86_XSTATE:
        return _FXSAVE + _XSAVE_HEADER
    return _FXSAVE if kind == NT_PRXFPREG or arch.word == 8 else _FSAVE


def xsave_layout(desc: bytes) -> Layout:
    """Return the layout that NT_X86_XSAVE_LAYOUT tells (Linux 6.12: struct x86_xfeat_component)."""
    whole = desc[: len(desc) // 16 * 16]
    return {kind: Place(offset, size) for kind, size, offset, _flags in struct.iter_unpack("<IIII", whole)}


def of_fsave(area: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the registers of an FSAVE area of i386: seven words of control, then eight times ten bytes."""
    for number in range(8):
        yield f"st{number}", area[28 + 10 * number : 38 + 10 * number]


def of_xsave(area: bytes, wide: bool, told: Layout) -> Iterator[tuple[str, bytes]]:
    """Yield the registers of an XSAVE area in its standard form, or of an FXSAVE area.

    ``wide``: a 64-bit process, which has 16 registers xmm and not 8. ``told`` is the layout that the
    dump tells; it may be empty.
    """
    yield from _of_x87(area)
    count = 16 if wide else 8
    low = [area[160 + 16 * number : 176 + 16 * number] for number in range(count)]
    head = area[_FXSAVE : _FXSAVE + 16].ljust(16, b"\0")
    enabled = int.from_bytes(area[_XCR0_AT : _XCR0_AT + 8], "little")
    in_use, form = struct.unpack("<QQ", head)
    if len(area) < _FXSAVE + _XSAVE_HEADER:
        layout: Optional[Layout] = _LAYOUTS[0]  # only SSE: the area ends before its components
    elif form & _COMPACTED:
        layout = None
    else:
        layout = told or _fitting(len(area), enabled or in_use)
    if layout is None:
        yield from ((f"xmm{number}", data) for number, data in enumerate(low))
        yield "xsave", area[_FXSAVE + _XSAVE_HEADER :]
        return
    halves, quarters = _parts(area, layout.get(_AVX), 16), _parts(area, layout.get(_ZMM_HIGH), 32)
    for number, data in enumerate(low):
        half, quarter = halves.get(number, b""), quarters.get(number, b"")
        if quarter.strip(b"\0"):
            yield f"zmm{number}", data + half.ljust(16, b"\0") + quarter
        else:
            yield (f"ymm{number}", data + half) if half.strip(b"\0") else (f"xmm{number}", data)
    if wide:
        yield from ((f"zmm{16 + number}", data) for number, data in _parts(area, layout.get(_ZMM_16), 64).items())
        yield from ((f"r{16 + number}", data) for number, data in _parts(area, layout.get(_APX), 8).items())
    yield from ((f"k{number}", data) for number, data in _parts(area, layout.get(_OPMASK), 8).items())
    yield from ((f"tmm{number}", data) for number, data in _parts(area, layout.get(_TILES), 1024).items())


def _of_x87(area: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the eight registers of an FXSAVE area, which has them in the order of the x87 unit's stack."""
    status = int.from_bytes(area[2:4], "little")
    for number in range(8):
        yield x87_register(number, status, area[32 + 16 * number : 42 + 16 * number])


def x87_register(number: int, status: int, data: bytes) -> tuple[str, bytes]:
    """Return the name and the bytes of the register that ST(number) is.

    If an MMX instruction wrote it, it has MMX's name. MMX counts from the bottom of the stack, and the status word has
    its top in bits 11 to 13 (SDM, volume 1, 9.5.1).
    """
    if data[8:10] == b"\xff\xff":
        return f"mm{(number + (status >> 11)) & 7}", data[:8]
    return f"st{number}", data


def _fitting(size: int, enabled: int) -> Optional[Layout]:
    """Return the known layout in which the enabled components fill exactly this many bytes, or None."""
    for layout in _LAYOUTS:
        known = [place.offset + place.size for number, place in layout.items() if enabled >> number & 1]
        if max([_FXSAVE + _XSAVE_HEADER, *known]) == size:
            return {number: place for number, place in layout.items() if enabled >> number & 1}
    return None


def _parts(area: bytes, place: Optional[Place], size: int) -> Mapping[int, bytes]:
    """Return the registers of a component, by number. Parts that the area lacks are left out."""
    if place is None:
        return {}
    end = min(place.offset + place.size, len(area))
    starts = range(place.offset, end - size + 1, size)
    return {number: area[at : at + size] for number, at in enumerate(starts) if any(area[at : at + size])}


def of_fpsimd(area: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield v0 to v31 of a ``struct user_fpsimd_state``."""
    for number in range(32):
        yield f"v{number}", area[16 * number : 16 * number + 16]


def of_sve(note: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the registers of NT_ARM_SVE or NT_ARM_SSVE: z0 to z31, then p0 to p15; or v0 to v31.

    The header (user_sve_header) has the vector's length in bytes. Bit 0 of its flags is clear where only the registers
    of FPSIMD follow. A predicate has a bit for each byte of a vector.
    """
    _size, _most, length, _longest, flags = struct.unpack_from("<IIHHH", note)
    if not flags & 1:
        yield from of_fpsimd(note[_SVE_HEADER : _SVE_HEADER + _FPSIMD])
        return
    if length % 16:
        return
    for number in range(32):
        yield f"z{number}", note[_SVE_HEADER + length * number : _SVE_HEADER + length * (number + 1)]
    at, part = _SVE_HEADER + 32 * length, length // 8
    for number in range(16):
        yield f"p{number}", note[at + part * number : at + part * (number + 1)]


def of_za(note: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the rows of NT_ARM_ZA: as many as a row has bytes. A thread that does not use it has only the header."""
    length = struct.unpack_from("<H", note, 8)[0]
    for row in range(length if length % 16 == 0 else 0):
        yield f"za{row}", note[_SVE_HEADER + length * row : _SVE_HEADER + length * (row + 1)]


class Lane(NamedTuple):
    """A value that part of a vector register holds. ``name`` says which part: "ymm3[2]" is the third word of ymm3."""

    name: str
    value: int


def values(registers: Mapping[str, bytes], word: int) -> set[int]:
    """Return the values of ``lanes`` without their names: a core may have 10,000 threads."""
    found: set[int] = set()
    for register, data in registers.items():
        found.update(value for _index, value in _words(data, word))
        if register.startswith("st"):
            found.update(value for _index, value in _integer_words(data, word))
    return found


def lanes(registers: Mapping[str, bytes], word: int) -> Iterator[Lane]:
    """Yield what the registers may point to: every aligned word that is not 0, and integers in the x87 unit.

    Words of text are left out. Functions for strings leave text in these registers.
    """
    for register, data in registers.items():
        for index, value in _words(data, word):
            yield Lane(_lane_name(register, index, index * word, len(data) > word), value)
        if register.startswith("st"):
            for index, value in _integer_words(data, word):
                yield Lane(register if word == 8 else f"{register}[{index}]", value)


def x87_integers(area: bytes, word: int) -> Iterator[Lane]:
    """Yield the integers in the x87 unit of an FXSAVE area."""
    for lane in lanes({name: data for name, data in _of_x87(area) if name.startswith("st")}, word):
        if "[" not in lane.name or word == 4:
            yield lane


def unaligned_values(registers: Mapping[str, bytes], word: int) -> Iterator[int]:
    """Yield the words that begin at the other bytes of the registers."""
    for data in registers.values():
        for at in range(len(data) - word + 1):
            if at % word:
                yield int.from_bytes(data[at : at + word], "little")


def _lane_name(register: str, index: int, offset: int, many: bool) -> str:
    """Return the name of a word of a register: the narrowest register that holds it, and its number there."""
    kind = register.rstrip("0123456789")
    number = register[len(kind) :]
    if kind == "xsave":
        return f"xsave+{_FXSAVE + _XSAVE_HEADER + offset:#x}"
    if kind in ("ymm", "zmm") and int(number) < 16:
        kind = "xmm" if offset < 16 else "ymm" if offset < 32 else "zmm"
    elif kind == "z" and offset < 16:
        kind = "v"
    return f"{kind}{number}[{index}]" if many else register


def _words(data: bytes, word: int) -> Iterator[tuple[int, int]]:
    """Yield (number, value) of the words that are neither 0 nor text."""
    code = "Q" if word == 8 else "I"
    for index, value in enumerate(struct.unpack_from(f"<{len(data) // word}{code}", data)):
        if value >> 32 or (value and not _is_text(data, index * word, value)):
            yield index, value


def _is_text(data: bytes, at: int, value: int) -> bool:
    """Return whether a word below 4 GiB is part of a text.

    The rule is that of the engine for memory (engine/core/src/blocks/text.rs). Nothing is known of the bytes before and
    after a register, so 16 bytes of text are one, too.
    """
    around = data[at // 16 * 16 : at // 16 * 16 + 16]
    if len(around) == 16 and not around.translate(None, _PRINTED):
        return True
    if at < 8 or data[at - 8 : at + 4].translate(None, _PRINTED):
        return False
    behind = data[at + 4 : at + 12]
    more = len(behind) - len(behind.lstrip(_PRINTED))
    return more == 8 or (behind[more : more + 1] == b"\0" and value % 8 != 0)


def _integer_words(data: bytes, word: int) -> Iterator[tuple[int, int]]:
    """Yield (number, value) of the words of the integer that a register of the x87 unit holds, without zeros."""
    whole = _integer(data)
    for index, value in enumerate((whole,) if word == 8 else (whole & 0xFFFFFFFF, whole >> 32)):
        if value:
            yield index, value


def _integer(data: bytes) -> int:
    """Return the integer that a register of the x87 unit holds, or 0. FILD keeps all 64 bits of an integer."""
    significand, exponent = struct.unpack("<QH", data[:10].ljust(10, b"\0"))
    shift = 63 - (exponent - 16383)
    if exponent == _NO_INTEGER or not 0 <= shift <= 63 or significand & ((1 << shift) - 1):
        return 0
    return int(significand >> shift)
