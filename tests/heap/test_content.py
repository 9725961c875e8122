"""The likely content of blocks, compared with a program that knows its own classes."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import FREE, LIVE
from dmods.heap.content import Content, class_of, describe_content
from dmods.heap.heap import find_heap
from dmods.heap.texts import string_in, text_in
from fixtures import cores
from tests.corekit import HERE, kernel_core

FLAGS = {"dynamic": [], "stripped": ["-s"], "static": ["-static"], "no-pie": ["-no-pie"], "optimised": ["-O2"]}

Told = tuple[CoreFile, dict[str, int]]


@pytest.fixture(scope="module", params=list(FLAGS))
def looks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    where: Path = tmp_path_factory.mktemp("looks")
    flags = FLAGS[request.param]
    subprocess.run(["g++", "-O1", str(HERE / "looks.cc"), "-o", str(where / "looks"), *flags], check=True)
    core = kernel_core(where / "looks", where)
    lines = (line.rpartition(" ") for line in (where / "truth").read_text().splitlines())
    return CoreFile(str(core)), {name: int(address) for name, _, address in lines}


def content(told: Told, name: str) -> Content:
    found = find_heap(told[0])
    block = found.block_at(told[1][name])
    assert block is not None
    return describe_content(found, block)


@pytest.mark.parametrize(
    "name",
    [
        "outer::Plain",
        "outer::Template<std::vector<int>, 3>",
        "outer::Both",
        "outer::Virtual",
        "outer::Holder",
        "(anonymous namespace)::Hidden",
        "main::Local",
    ],
)
def test_objects_are_named_by_their_class(looks: Told, name: str) -> None:
    seen = content(looks, name)
    assert seen.class_name == name
    assert seen.objects[0].offset == 0
    assert seen.summary() == f"C++ object of class {name}"


def test_an_object_with_two_vtable_pointers_is_one_object(looks: Told) -> None:
    assert len(content(looks, "outer::Both").objects) == 1
    target, told = looks
    second = int.from_bytes(target.read(told["second"], 8), "little")
    assert told["second"] != told["outer::Both"]
    assert class_of(target, second) == "outer::Both"


def test_members_are_objects_too(looks: Told) -> None:
    assert content(looks, "member").objects == [(8, "outer::Plain")]
    assert content(looks, "member").summary() == "C++ object of class outer::Plain at +0x8"
    holder = content(looks, "outer::Holder")
    assert [found.class_name for found in holder.objects] == ["outer::Holder", "outer::Plain"]
    assert [found.text for found in holder.strings] == ["short"]


def test_arrays_behind_their_cookie(looks: Told) -> None:
    assert [found.offset for found in content(looks, "array").objects] == [8, 24, 40]
    assert content(looks, "array").summary() == "3 C++ objects of class outer::Plain"


def test_strings(looks: Told) -> None:
    assert content(looks, "short-string").summary() == "std::string 'fits inside'"
    assert content(looks, "long-string").strings == [(0, "x" * 256 + "...")]
    assert content(looks, "empty-string").strings == []
    assert content(looks, "chars").text == "abcde"
    assert content(looks, "too-short").text is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\0rest", "plain"),
        (b"no end", "no end"),
        ("grüße\0".encode(), "grüße"),
        (b"abc\0", None),
        (b"", None),
        (b"\0abcdef", None),
        (b"bell\x07bell\0", None),
        (b"\xff\xfe\xfd\xfcabcd\0", None),
        (b"text then \xff\0", None),
        (b"a" * 255 + "ü".encode() + b"more", "a" * 255 + "..."),
        (b"a" * 300, "a" * 256 + "..."),
        (b"tab\tline\n\0", "tab\tline\n"),
    ],
)
def test_what_is_a_string(data: bytes, text: object) -> None:
    assert string_in(data) == text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("grüße".encode() + b"\0", ("grüße", "UTF-8")),
        ("Grüße aus Köln".encode("latin-1") + b"\0\0", ("Grüße aus Köln", "Latin-1")),
        ("señor, ¿qué?".encode("latin-1") + b"\0", ("señor, ¿qué?", "Latin-1")),
        ("wide text".encode("utf-16-le") + b"\0\0rest", ("wide text", "UTF-16")),
        ("Größe".encode("utf-16-le"), ("Größe", "UTF-16")),
        ("Привет, мир".encode("utf-16-le") + b"\0\0", ("Привет, мир", "UTF-16")),
        ("こんにちは世界".encode("utf-16-le") + b"\0\0", ("こんにちは世界", "UTF-16")),
        (b"\xff\xfe" + "marked".encode("utf-16-le") + b"\0\0", ("marked", "UTF-16")),
        (b"\xfe\xff" + "other end".encode("utf-16-be") + b"\0\0", ("other end", "UTF-16")),
        (("long " * 100).encode("utf-16-le"), (("long " * 100)[:256] + "...", "UTF-16")),
        ("abc".encode("utf-16-le") + b"\0\0", None),
        (struct.pack("<4Q", 0x7F3A1C0025C0, 0x555555756260, 0x41, 0), None),  # pointers
        (struct.pack("<4I", 65, 66, 67, 68), None),  # numbers of 32 bits
        (struct.pack("<2d", 3.25, 1e9), None),
        (b"\xe9\xe8\xea\xeb\xe0\xe2\0", None),  # only letters above 0x7f
        (b"ab\xa9 \xae \xff\0", None),
        (b"\x01\x02\x03\x04", None),
    ],
)
def test_text_of_other_encodings(data: bytes, expected: object) -> None:
    assert text_in(data) == expected


def test_random_bytes_are_no_text() -> None:
    """A few of 100,000 random blocks may pass by chance: four bytes of ASCII and a NUL are a UTF-8 text."""
    chance = random.Random(7)
    found = [text for text in (text_in(chance.randbytes(64)) for _ in range(100_000)) if text is not None]
    assert sum(text.encoding == "UTF-8" for text in found) < 60
    assert sum(text.encoding != "UTF-8" for text in found) < 12
    sorted_words = (sorted(chance.getrandbits(47) for _ in range(8)) for _ in range(20_000))
    texts = [text_in(struct.pack("<8Q", *words)) for words in sorted_words]
    assert all(text is None or text.encoding != "UTF-16" for text in texts)


def test_words_of_any_kind_are_no_classes() -> None:
    """No word raises an exception. Code, data and the ends of mappings are no vtables."""
    core = cores.take("cxx")
    target = CoreFile(str(core.core))
    chance = random.Random(1)
    edges = [at + d for m in target.mappings() for at in (m.start, m.end) for d in (-16, -8, -1, 0, 1, 8, 16)]
    wild = [chance.getrandbits(64) for _ in range(1000)] + [0, 1, 7, 8, 16, (1 << 64) - 1, (1 << 64) - 8, 1 << 63]
    inside = [chance.randrange(m.start, m.end) & ~7 for m in target.mappings() for _ in range(200)]
    named = {class_of(target, value) for value in [*edges, *wild, *inside]} - {None}
    # By chance a word may be the end of a real type's vtable. Then the name is a real type's.
    assert all(name and name.isprintable() for name in named)
    assert len(named) < 30


@pytest.mark.parametrize("mode", ["overrun", "wild-tcache", "wild-bins", "cyclic-tcache"])
def test_every_block_of_a_damaged_heap_can_be_looked_at(mode: str) -> None:
    core = cores.take("corrupt", mode=mode)
    found = find_heap(CoreFile(str(core.core)))
    seen = [describe_content(found, block).summary() for block in found.blocks(LIVE, FREE)]
    assert seen
