"""Helpers for tests of the auditor: build programs for it, and read its tables from a running process.

This reader is for tests only. It follows audit/format.h from the exported symbol on, and shares no code with the reader
of the product.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from elftools.elf.elffile import ELFFile

from dmods.machine.installed import preloadable

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "audit"
LIBRARY = ROOT / "dmods" / "libdmods_audit.so"
RANGE_KINDS = {1: "library", 2: "records", 3: "stacks", 4: "log", 5: "other", 6: "bootstrap"}


def compiled(source: str, output: Path, *flags: str) -> Path:
    """Return a program of this folder, compiled."""
    compiler = "g++" if source.endswith(".cc") else "gcc"
    subprocess.run(
        [compiler, "-O2", "-g", "-fomit-frame-pointer", "-pthread", *flags, "-o", output, HERE / source], check=True
    )
    return output


def built(output: Path, *flags: str) -> Path:
    """Return another build of the auditor."""
    subprocess.run([ROOT / "audit" / "build", output, *flags], check=True, cwd=ROOT)
    return output


def size_of(program: Path, function: str) -> int:
    """Return the size of a function's code in bytes."""
    with open(program, "rb") as file:
        (symbol,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name(function)
    return int(symbol["st_size"])


def environment(words: str, library: Path = LIBRARY, **more: str) -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": preloadable(str(library)), "DMODS_AUDIT": words, **more}


class Block(NamedTuple):
    """A record with its stack and thread. ``time`` is in ns of CLOCK_MONOTONIC."""

    address: int
    size: int
    time: float
    tid: int
    pid: int
    stack: tuple[int, ...]
    truncated: bool


class Transaction(NamedTuple):
    """An entry of the log. ``contents`` are the bytes that were kept of the block."""

    sequence: int
    freed: bool
    address: int
    size: int
    stack: tuple[int, ...]
    alloc_stack: tuple[int, ...]
    contents: bytes


@dataclass
class Tables:
    """The tables of a process, read through /proc/PID/mem."""

    pid: int
    preloaded: Path = LIBRARY

    def __post_init__(self) -> None:
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        self.root = self._root()
        magic, self.version, self.size, self.state, self.own_pid = struct.unpack("<16s4I", self.read(self.root, 32))
        assert magic == b"DMODS-AUDIT-ROOT"
        data = self.read(self.root, self.size)
        at = 32
        (self.text, self.flags, self.frames, self.sample, self.log, self.contents) = struct.unpack_from(
            "<256sIIQQQ", data, at
        )
        at += 256 + 8 + 24 + 16
        self.clock = struct.unpack_from("<2I10Q", data, at)
        at += 88
        self.shadow = struct.unpack_from("<Q8I24B", data, at)
        at += 64
        self.stacks, self.threads = (
            struct.unpack_from("<QIIIIQ", data, at),
            struct.unpack_from("<QIIIIQ", data, at + 32),
        )
        at += 64
        self.log_ring, self.contents_ring = (
            struct.unpack_from("<QQIIQ", data, at),
            struct.unpack_from("<QQIIQ", data, at + 32),
        )
        at += 64
        self.ranges_array = struct.unpack_from("<QIIQ", data, at)
        at += 24
        self.figures = struct.unpack_from("<12Q", data, at)
        at += 96
        self.status = data[at : at + 256].split(b"\0")[0].decode()

    def _root(self) -> int:
        maps = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        base = next(int(line.split("-")[0], 16) for line in maps if line.endswith(str(self.preloaded)))
        with open(self.preloaded, "rb") as file:
            (symbol,) = ELFFile(file).get_section_by_name(".dynsym").get_symbol_by_name("dmods_audit_root")
        return base + int(symbol["st_value"])

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self.memory, size, address)

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def nodes(self) -> list[tuple[int, int]]:
        """Return (pc with its flags, parent) by index. Entry 0 is not a node."""
        chunks, shift, count, size, _, used = self.stacks
        found = []
        for chunk in self._words(chunks, count):
            if chunk == 0 or len(found) >= used:
                break
            found += [struct.unpack_from("<QI", entry) for entry in _cut(self.read(chunk, size << shift), size)]
        return found[:used]

    def thread_ids(self) -> list[tuple[int, int]]:
        """Return (tid, pid) by index."""
        chunks, shift, count, size, _, used = self.threads
        found = []
        for chunk in self._words(chunks, count):
            if chunk == 0:
                break
            found += [struct.unpack_from("<II", entry) for entry in _cut(self.read(chunk, size << shift), size)]
        return found[:used]

    def blocks(self) -> list[Block]:
        """Return the records of all live blocks."""
        top, top_shift, top_count, middle_shift, middle_count, granule, leaf_records, record_size, offset_shift = (
            self.shadow[:9]
        )
        live, offset, stack, thread, size, moment = _cut(self.shadow[9:], 4)
        nodes, threads, found = self.nodes(), self.thread_ids(), []
        for high, middle in enumerate(self._words(top, top_count)):
            for index, leaf in enumerate(self._words(middle, middle_count) if middle else ()):
                if leaf == 0:
                    continue
                data = self.read(leaf, leaf_records * record_size)
                for number, words in enumerate(struct.iter_unpack(f"<{record_size // 8}Q", data)):
                    if not _bits(words, live):
                        continue
                    address = (high << top_shift) + (index << middle_shift) + (number << granule)
                    address += _bits(words, offset) << offset_shift
                    asked = _bits(words, size)
                    if asked == (1 << size[2]) - 1:
                        asked = self._large(address + (1 << granule))
                    pcs, truncated = _chain(nodes, _bits(words, stack))
                    tid, pid = threads[_bits(words, thread)]
                    found.append(Block(address, asked, self.when(_bits(words, moment)), tid, pid, pcs, truncated))
        return found

    def _large(self, address: int) -> int:
        top, top_shift, _, middle_shift, middle_count, granule, leaf_records, record_size = self.shadow[:8]
        (middle,) = self._words(top + 8 * (address >> top_shift), 1)
        (leaf,) = self._words(middle + 8 * ((address >> middle_shift) % middle_count), 1)
        (size,) = self._words(leaf + ((address >> granule) % leaf_records) * record_size + 8, 1)
        return size

    def when(self, moment: int) -> float:
        kind, shift, ticks, monotonic, _, latest = self.clock[:6]
        now_ticks, now, _ = self.clock[6 + 3 * (latest & 1) : 9 + 3 * (latest & 1)]
        assert kind in (1, 2)
        return float(monotonic + (moment << shift) * (now - monotonic) / (now_ticks - ticks))

    def transactions(self) -> list[Transaction]:
        """Return the log, oldest first."""
        entries, capacity, size, _, _ = self.log_ring
        nodes, found = self.nodes(), []
        for index, entry in enumerate(_cut(self.read(entries, capacity * size), size)):
            sequence, address, asked, _, stack, _, event, kept, _, alloc_stack, _ = struct.unpack("<4Q4IQ2I", entry)
            if sequence == 0:
                continue
            assert (sequence - 1) % capacity == index
            contents = self.read(self.contents_ring[0] + index * self.contents_ring[2], kept) if kept else b""
            pcs = _chain(nodes, stack)[0], _chain(nodes, alloc_stack)[0]
            found.append(Transaction(sequence, event == 2, address, asked, *pcs, contents))
        return sorted(found)

    def ranges(self) -> list[tuple[int, int, str]]:
        entries, size, _, count = self.ranges_array
        found = (struct.unpack_from("<QQI", entry) for entry in _cut(self.read(entries, size * count), size))
        return [(start, end, RANGE_KINDS[kind]) for start, end, kind in found]


def _cut(data, size):  # type: ignore[no-untyped-def]
    return [data[at : at + size] for at in range(0, len(data) // size * size, size)]


def _bits(words: Sequence[int], where: Sequence[int]) -> int:
    word, shift, width = where[:3]
    return words[word] >> shift & (1 << width) - 1


def _chain(nodes: Sequence[tuple[int, int]], node: int) -> tuple[tuple[int, ...], bool]:
    pcs, truncated = [], False
    while node:
        pc, parent = nodes[node]
        assert parent < node
        pcs.append(pc & (1 << 48) - 1)
        truncated = bool(pc >> 48 & 1)
        node = parent
    return tuple(pcs), truncated


@contextlib.contextmanager
def waiting(command: Sequence[object], told: Path, variables: dict[str, str]) -> Iterator[tuple[int, list[str]]]:
    """Start a program that writes to ``told`` and waits. Yield the pid that it wrote, and its lines."""
    child = subprocess.Popen([str(word) for word in command], env=variables, start_new_session=True)
    try:
        yield _told(child, told)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        child.wait()


def _told(child: subprocess.Popen[bytes], told: Path) -> tuple[int, list[str]]:
    limit = time.monotonic() + 240
    while time.monotonic() < limit:
        lines: Optional[list[str]] = told.read_text().splitlines() if told.exists() else None
        if lines and lines[-1] == "end":
            return int(lines[0].split()[0]), lines
        assert child.poll() is None, f"the program ended with status {child.returncode}"
        time.sleep(0.02)
    raise AssertionError("the program wrote nothing")
