"""Vector registers in notes that no machine here writes. The layouts are those of the manuals that the module names."""

from __future__ import annotations

import random
import struct

import pytest

from dmods.process import vectors
from dmods.process.arch import AARCH64, I386, X86_64
from dmods.process.vectors import VectorRegisters, lanes, values
from dmods.target import Arch

POINTER = 0x7F12_3456_7890


def held(arch: Arch, *notes: tuple[int, bytes], layout: bytes = b"") -> dict[str, int]:
    """Return what the lanes of the registers hold, by name."""
    registers = VectorRegisters(arch, vectors.xsave_layout(layout))
    for kind, desc in notes:
        assert registers.add(kind, desc) is None
    found = {lane.name: lane.value for lane in lanes(registers, arch.word)}
    assert set(found.values()) == values(registers, arch.word)
    return found


def xsave(size: int, enabled: int, *words: tuple[int, int]) -> bytes:
    """Return an XSAVE area with the words at these offsets. XCR0 is where the kernel writes it."""
    area = bytearray(size)
    for at, value in ((464, enabled), (512, enabled), *words):
        struct.pack_into("<Q", area, at, value)
    return bytes(area)


@pytest.mark.parametrize(
    ("size", "enabled", "mask", "high", "whole"),
    [(2696, 0x2E7, 1088, 1152, 1664), (2440, 0x2E7, 832, 896, 1408), (2688, 0xE7, 1088, 1152, 1664)],
    ids=["Intel", "AMD", "Intel without keys"],
)
def test_the_layouts_of_processors(size: int, enabled: int, mask: int, high: int, whole: int) -> None:
    words = (
        (160 + 16 * 3 + 8, POINTER),
        (576 + 16 * 4, POINTER + 1),
        (mask + 8 * 5, POINTER + 2),
        (high + 32 * 7 + 24, POINTER + 3),
        (whole + 64 * 2 + 8, POINTER + 4),
    )
    assert held(X86_64, (vectors.NT_X86_XSTATE, xsave(size, enabled, *words))) == {
        "xmm3[1]": POINTER,
        "ymm4[2]": POINTER + 1,
        "k5": POINTER + 2,
        "zmm7[7]": POINTER + 3,
        "zmm18[1]": POINTER + 4,
    }


def test_the_layout_that_the_kernel_tells() -> None:
    """NT_X86_XSAVE_LAYOUT, since Linux 6.12. Component 19 holds the further general registers of APX."""
    layout = struct.pack("<12I", 2, 256, 576, 0, 5, 64, 1600, 0, 19, 128, 2000, 0)
    area = xsave(2128, 0x80027, (1600 + 8, POINTER), (2000 + 8 * 15, POINTER + 8))
    assert held(X86_64, (vectors.NT_X86_XSTATE, area), layout=layout) == {"k1": POINTER, "r31": POINTER + 8}


def test_an_unknown_layout_loses_nothing() -> None:
    for area in (xsave(2000, 0xE7, (1992, POINTER)), xsave(2696, 0x2E7, (520, 1 << 63), (1992, POINTER))):
        assert held(X86_64, (vectors.NT_X86_XSTATE, area)) == {f"xsave+{1992:#x}": POINTER}


def test_fsave_and_fxsave_of_i386() -> None:
    """FILD makes 0x08049abc a number between 2^27 and 2^28: its exponent is 16383 + 27."""
    old = bytearray(108)
    struct.pack_into("<QH", old, 28 + 10 * 6, 0x0804_9ABC << 36, 16383 + 27)
    assert held(I386, (vectors.NT_PRFPREG, bytes(old)))["st6[0]"] == 0x0804_9ABC
    new = bytearray(512)
    struct.pack_into("<H", new, 2, 5 << 11)  # TOP
    struct.pack_into("<QH", new, 32 + 16 * 4, 0x0804_9ABC_0000_0000, 0xFFFF)
    struct.pack_into("<I", new, 160 + 16 * 7 + 12, 0x0804_1234)
    struct.pack_into("<I", new, 160 + 16 * 8, 0x0804_1235)  # i386 has no xmm8
    assert held(I386, (vectors.NT_PRFPREG, bytes(old)), (vectors.NT_PRXFPREG, bytes(new))) == {
        "mm1[1]": 0x0804_9ABC,
        "xmm7[3]": 0x0804_1234,
    }


def test_text_in_a_register_is_no_pointer() -> None:
    """strlen and memcpy leave text there, and where a heap lies low, four characters are an address."""
    area = bytearray(512)
    area[160 : 160 + 16] = b"a line of text\n\t"
    area[176 : 176 + 16] = b"the end\tof\0\0\0\0\0\0"
    struct.pack_into("<4I", area, 192, 0x5656_5020, 0x5656_5030, 0, 0x5656_5040)
    found = held(I386, (vectors.NT_PRXFPREG, bytes(area)))
    assert not [name for name in found if name.startswith("xmm0")]
    assert {name: value for name, value in found.items() if name.startswith("xmm2")} == {
        "xmm2[0]": 0x5656_5020,
        "xmm2[1]": 0x5656_5030,
        "xmm2[3]": 0x5656_5040,
    }


@pytest.mark.parametrize("content", [(1 << 63, 0x7FFF), (3 << 62, 0x7FFF), (1 << 63, 16382), ((1 << 63) + 1, 16400)])
def test_other_numbers_of_the_x87_unit_are_no_integers(content: tuple[int, int]) -> None:
    area = bytearray(512)
    struct.pack_into("<QH", area, 32, *content)
    assert held(X86_64, (vectors.NT_PRFPREG, bytes(area))) == {"st0[0]": content[0]}


def sve(length: int, flags: int, body: bytes) -> bytes:
    return struct.pack("<IIHHHH", 16 + len(body), 1 << 16, length, 256, flags, 0) + body


def test_the_registers_of_aarch64() -> None:
    fpsimd = bytearray(528)
    struct.pack_into("<Q", fpsimd, 16 * 31 + 8, POINTER)
    plain = (vectors.NT_PRFPREG, bytes(fpsimd))
    assert held(AARCH64, plain) == {"v31[1]": POINTER}
    assert held(AARCH64, plain, (vectors.NT_ARM_SVE, sve(64, 0, bytes(fpsimd)))) == {"v31[1]": POINTER}
    wide = bytearray(34 * 64 + 8 * 17)
    struct.pack_into("<Q", wide, 64 * 2 + 8, POINTER)
    struct.pack_into("<Q", wide, 64 * 9 + 56, POINTER + 8)
    struct.pack_into("<Q", wide, 64 * 32 + 8 * 3, POINTER + 16)
    expected = {"v2[1]": POINTER, "z9[7]": POINTER + 8, "p3": POINTER + 16}
    assert held(AARCH64, plain, (vectors.NT_ARM_SVE, sve(64, 1, bytes(wide)))) == expected
    rows = bytearray(64 * 64)
    struct.pack_into("<Q", rows, 64 * 5 + 16, POINTER)
    table = struct.pack("<8Q", 0, POINTER, *[0] * 6)
    assert held(AARCH64, (vectors.NT_ARM_ZA, sve(64, 0, bytes(rows))), (vectors.NT_ARM_ZT, table)) == {
        "za5[2]": POINTER,
        "zt0[1]": POINTER,
    }


def test_what_is_cut_short_is_told() -> None:
    for arch, kind, least in ((X86_64, vectors.NT_X86_XSTATE, 576), (X86_64, vectors.NT_PRFPREG, 512)):
        registers = VectorRegisters(arch, {})
        assert registers.add(kind, bytes(least - 1)) is not None
        assert not registers.known
        assert registers.add(kind, bytes(least)) is None
        assert registers.known


@pytest.mark.quick("x86_64", "i386")
@pytest.mark.parametrize("arch", [X86_64, I386, AARCH64], ids=lambda arch: arch.name)
def test_any_bytes_have_an_answer(arch: Arch) -> None:
    dice = random.Random(1)
    kinds = sorted(vectors.X86_NOTES | vectors.ARM_NOTES)
    for _ in range(300):
        layout = vectors.xsave_layout(dice.randbytes(dice.randrange(80)))
        registers = VectorRegisters(arch, layout)
        for kind in kinds:
            registers.add(kind, dice.randbytes(dice.choice((0, 16, 108, 512, 576, 900, 3000))))
        assert {lane.value for lane in lanes(registers, arch.word)} == values(registers, arch.word)
        list(vectors.unaligned_values(registers, arch.word))
