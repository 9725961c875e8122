"""Compile and dump tiny programs for the tests, and make cores from nothing.

The made-up cores follow the gABI and the kernel's headers, not dmods' own reading of them.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fixtures import userlands, whole
from fixtures.cores import check_core_pattern, gcore
from fixtures.limits import HANG

HERE = Path(__file__).parent


def compile_c(source: Path, output: Path, *flags: str) -> Path:
    subprocess.run(["gcc", "-O1", "-g", str(source), "-o", str(output), *flags], check=True)
    return output


def kernel_core(
    program: Path,
    where: Path,
    *args: str,
    coredump_filter: int = 0x33,
    env: Optional[Mapping[str, str]] = None,
    output: Optional[Path] = None,
) -> Path:
    """Run the program in ``where`` until it dies. Return the core that the kernel leaves there.

    It writes to the file ``output``, where one is named.
    """
    check_core_pattern()
    script = 'ulimit -c unlimited; echo "$0" > /proc/self/coredump_filter; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, hex(coredump_filter), str(program), *args],
        cwd=where,
        check=False,
        timeout=HANG,
        env={**os.environ, **(env or {})},
        capture_output=output is not None,
    )
    if output is not None:
        output.write_bytes(done.stdout + done.stderr)
    assert done.returncode < 0, f"{program} did not die of a signal: {done.returncode}"
    core = next(path for path in where.iterdir() if path.name.startswith("core"))
    whole.elf_core(core)
    return core


@contextmanager
def dumped_in(
    userland: str, source: Path, compiler: Sequence[str], *args: str, beside: Sequence[Path] = ()
) -> Iterator[tuple[Path, Path]]:
    """Compile and run a program that dies, in another userland. Yield the kernel's core of it, and the userland's root.

    The source includes the files ``beside``. What the program wrote is beside the core, while the context lasts.
    """
    check_core_pattern()
    land = userlands.get(userland)
    assert land.sysroot is not None
    land.directory("cores").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=land.directory("cores")) as folder:
        work = Path(folder)
        for each in (source, *beside):
            shutil.copy(each, work)
        program = work / source.stem
        subprocess.run(land.command([*compiler, source.name, "-o", program.name], work), check=True, cwd=work)
        words = land.command([land.inside(program), *args], work)
        run = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *words]
        assert subprocess.run(run, check=False, cwd=work, timeout=HANG).returncode < 0
        (core,) = work.glob("core*")
        whole.elf_core(core)
        yield core, land.sysroot


def gdb_core(program: Path, where: Path) -> Path:
    """Return a core of the waiting program, taken by gdb's gcore."""
    process = subprocess.Popen([str(program), "wait"], cwd=where)
    try:
        deadline = time.monotonic() + HANG
        while not ((where / "truth").exists() and "told" in (where / "truth").read_text()):
            assert process.poll() is None, "the program ended too early"
            assert time.monotonic() < deadline, "the program did not get ready"
            time.sleep(0.01)
        gcore(process.pid, where / "core.gdb")
    finally:
        process.kill()
        process.wait()
    return where / "core.gdb"


@dataclass
class Crash:
    """A core of tests/crash.c, with what the program said of itself before."""

    core: Path
    program: Path
    where: Path
    pid: int = 0
    threads: dict[int, int] = field(default_factory=dict)  # tid -> pthread_self
    modules: dict[str, int] = field(default_factory=dict)  # path ("" for the program) -> bias
    symbols: dict[str, int] = field(default_factory=dict)

    def read_truth(self) -> Crash:
        for line in (self.where / "truth").read_text().splitlines():
            kind, _, rest = line.partition(" ")
            words = rest.split(" ")
            if kind == "pid":
                self.pid = int(words[0])
            elif kind == "thread":
                self.threads[int(words[0])] = int(words[1])
            elif kind == "module":
                self.modules[words[1]] = int(words[0])
            elif kind == "symbol":
                self.symbols[words[1]] = int(words[0])
        return self

    def maps(self) -> list[tuple[int, int, str, int, Optional[str]]]:
        """Return (start, end, "rwx", offset, path of a file or None) of each line of /proc/PID/maps.

        Mappings that the kernel never dumps unchanged are left out.
        """
        found = []
        for line in (self.where / "maps").read_text().splitlines():
            extent, flags, offset, _device, inode, *path = line.split(maxsplit=5)
            start, end = (int(text, 16) for text in extent.split("-"))
            if path == ["[vsyscall]"]:
                continue
            name = path[0] if path and inode != "0" else None
            found.append((start, end, flags[:3], int(offset, 16) if name else 0, name))
        return found


def crash(where: Path, how: str, coredump_filter: int = 0x33) -> Crash:
    """Build and dump tests/crash.c in ``where``."""
    compile_c(HERE / "crashlib.c", where / "libcrash.so.1", "-shared", "-fPIC", "-Wl,-soname,libcrash.so.1")
    program = compile_c(
        HERE / "crash.c", where / "crash", str(where / "libcrash.so.1"), "-Wl,-rpath,$ORIGIN", "-pthread", "-ldl"
    )
    (where / "data").write_bytes(b"data file\n" + bytes(range(256)) * 32)
    core = gdb_core(program, where) if how == "gcore" else kernel_core(program, where, coredump_filter=coredump_filter)
    return Crash(core, program, where).read_truth()


# -- cores from nothing -----------------------------------------------------------------------------------------------

PT_LOAD, PT_NOTE = 1, 4


def note(kind: int, desc: bytes, name: bytes = b"CORE") -> bytes:
    name += b"\0"
    return struct.pack("<III", len(name), len(desc), kind) + _padded(name) + _padded(desc)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def prstatus64(tid: int, registers: Sequence[int], number: int = 0) -> bytes:
    """Return struct elf_prstatus of a 64-bit machine (include/linux/elfcore.h)."""
    head = struct.pack("<iiih2xQQiiii8Q", number, 0, 0, number, 0, 0, tid, 0, 0, 0, *[0] * 8)
    return head + struct.pack(f"<{len(registers)}Q", *registers) + bytes(8)


def file_note(entries: Sequence[tuple[int, int, int, str]], page: int = 4096) -> bytes:
    """Return NT_FILE (fs/binfmt_elf.c, fill_files_note)."""
    head = struct.pack("<QQ", len(entries), page) + b"".join(struct.pack("<QQQ", *entry[:3]) for entry in entries)
    return head + b"".join(entry[3].encode() + b"\0" for entry in entries)


@dataclass
class Memory:
    start: int
    data: bytes
    size: int = 0  # p_memsz, where it is more than the data
    flags: int = 6


def elf64_core(
    memory: Sequence[Memory], notes: bytes, machine: int = 62, xnum: bool = False, phentsize: int = 56
) -> bytes:
    """Return a little-endian 64-bit core: header, program headers, notes, memory.

    ``xnum``: the count is in section 0.
    """
    count = len(memory) + 1
    table = 64
    at = table + count * 56 + (64 if xnum else 0)
    headers = [struct.pack("<IIQQQQQQ", PT_NOTE, 0, at, 0, 0, len(notes), 0, 4)]
    body = notes
    for piece in memory:
        size = max(piece.size, len(piece.data))
        headers.append(
            struct.pack("<IIQQQQQQ", PT_LOAD, piece.flags, at + len(body), piece.start, 0, len(piece.data), size, 1)
        )
        body += piece.data
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, count, 0, 0) if xnum else b""
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 4, machine, 1, 0, table, table + count * 56 if xnum else 0, 0, 64, phentsize,
        0xFFFF if xnum else count, 64 if xnum else 0, 1 if xnum else 0, 0,
    )  # fmt: skip
    return header + b"".join(headers) + section + body
