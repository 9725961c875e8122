"""Texts of 16 or 32 bits a character are recognised, and samples of signals are not taken for texts."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.texts import text_in
from fixtures import answers, audited
from tests.corekit import compile_c, kernel_core

SENTENCES = [
    "connection refused",
    "C:\\Users\\anna\\report.docx",
    "https://example.org/path?id=17",
    "Error 0x80070005: Access is denied.",
    "getElementById",
    "SELECT name FROM users WHERE id = 7",
    "Größe der Straße prüfen",
    "L'été dernier, ça coûtait 20 €",
    "Příliš žluťoučký kůň",
    "Zażółć gęślą jaźń",
    "Tiếng Việt rất đẹp",
    "Παρακαλώ περιμένετε",
    "Привет, мир",
    "Підключення втрачено",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "ยินดีต้อนรับ",
    "お問い合わせありがとうございます",
    "株式会社東京電力",
    "文件未找到,请重试。",
    "연결이 끊어졌습니다",
]


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_is_a_text(text: str) -> None:
    for name, codec, end in (("UTF-16", "utf-16-le", b"\0\0"), ("UTF-32", "utf-32-le", b"\0\0\0\0")):
        found = text_in(text.encode(codec) + end + bytes(12))
        assert found == (text, name)
        # Old words behind the end change nothing.
        assert text_in(text.encode(codec) + end + b"\x17\xfe\x03\x81" * 4) == (text, name)


def signals() -> list[tuple[str, list[int]]]:
    """Return 16-bit numbers as programs have them in buffers: no text among them."""
    chance = random.Random(5)
    found: list[tuple[str, list[int]]] = []
    for amplitude in (40, 100, 400, 3000, 12000, 30000):
        for period in (9, 31, 97, 400):
            wave = [int(amplitude * math.sin(2 * math.pi * n / period)) for n in range(200)]
            found.append((f"sine {amplitude} {period}", wave))
            found.append((f"rectified {amplitude} {period}", [abs(each) for each in wave]))
            for offset in (0x100, 0x410, 0x5000, 0xB000):
                noisy = [offset + each // 8 + chance.randrange(-3, 4) for each in wave]
                found.append((f"offset {offset:#x} {amplitude} {period}", noisy))
    found += [
        (f"constant {value:#x}", [value] * 200) for value in (0x0101, 0x6464, 0x4141, 0xBBBB, 0x0061, 0x3042, 0x4E2D)
    ]
    found += [(f"counter {start:#x}", list(range(start, start + 60))) for start in (0x41, 0x100, 0x400, 0x4E00, 0xAC00)]
    found += [(f"mask {n}", [chance.choice((0x0101, 0x0100, 0x0001, 0x0101)) for _ in range(100)]) for n in range(20)]
    for low, high in ((1, 0x200), (0x20, 0x7F), (0x100, 0x180), (0x400, 0x460), (0x4E00, 0x5200), (0xAC00, 0xAD00)):
        walk = [(low + high) // 2]
        for _ in range(100):
            walk.append(min(high - 1, max(low, walk[-1] + chance.randrange(-2, 3))))
        found.append((f"walk {low:#x}", walk))
    return found


@pytest.mark.parametrize(("name", "numbers"), signals(), ids=lambda each: each if isinstance(each, str) else "")
def test_a_signal_is_no_text(name: str, numbers: list[int]) -> None:
    narrow = struct.pack(f"<{len(numbers)}H", *(each & 0xFFFF for each in numbers))
    wide = struct.pack(f"<{len(numbers)}I", *(each & 0xFFFFFFFF for each in numbers))
    for data in (narrow, narrow + b"\0\0\0\0", wide, wide + bytes(8)):
        found = text_in(data)
        assert found is None or found.encoding == "UTF-8"  # 0x6464 are letters of ASCII


def test_random_numbers_are_rarely_a_text() -> None:
    chance = random.Random(11)
    for low, high in ((0, 0x200), (0x20, 0x7F), (0x300, 0x600), (0x3000, 0xD800), (0, 0x10000)):
        for width, code in ((2, "H"), (4, "I")):
            passed = 0
            for _ in range(2000):
                numbers = [chance.randrange(low, high) for _ in range(16)]
                found = text_in(struct.pack(f"<16{code}", *numbers) + bytes(width))
                passed += found is not None and found.encoding.startswith(("UTF-16", "UTF-32"))
            # Where every number is a character of ASCII, a few look like words.
            assert passed < (80 if high == 0x7F else 20), (hex(low), width, passed)


@pytest.mark.parametrize("guard", [b"\xbb" * 16, b"\xfe\xca\xdd\xba" * 4, b"\xef\xbe\xad\xde" * 4])
def test_a_guard_is_no_text(guard: bytes) -> None:
    for text in (b"dddddddddddd", b"abcdefghij", b"some words", b""):
        found = text_in(text + guard + bytes(8))
        assert found is None or found.text == text.decode()


GUARDED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
static char *volatile full;
static wchar_t *volatile wide;
int main(int argc, char **argv) {
    full = malloc(20);
    memset(full, 'd', 20);
    wide = wcsdup(L"wide characters");
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%p %p", (void *)full, (void *)wide);
    fclose(file);
    abort();
}
"""


@pytest.mark.parametrize("options", ["", "audit,guards"])
def test_whatis_shows_the_text_and_no_guard(tmp_path: Path, options: str) -> None:
    (tmp_path / "program.c").write_text(GUARDED)
    program = compile_c(tmp_path / "program.c", tmp_path / "program", "-fno-builtin")
    env = audited.environment(options) if options else None
    target = CoreFile(str(kernel_core(program, tmp_path, str(tmp_path / "told"), env=env)))
    full, wide = (tmp_path / "told").read_text().split()
    assert "string 'dddddddddddddddddddd'" in answers.text(target, "whatis", full)
    assert "UTF-32 string 'wide characters'" in answers.text(target, "whatis", wide)
