"""Dumps that other tools wrote: valgrind, packers, delve, LLDB, CRIU, tar. Compared with what the program said."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.process.unwind import unwind
from fixtures import _cache, answers, cores
from fixtures.limits import HANG, HANG_CPU
from tests import quick
from tests.corekit import Crash, Memory, compile_c, elf64_core, note, prstatus64
from tests.dumpkit import (
    AT_PHDR,
    AT_PHENT,
    NT_AUXV,
    NT_FILE,
    NT_SIGINFO,
    Note,
    minidump,
    with_notes,
    without,
    without_text,
)

VDSO = "linux-vdso.so.1"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def frames(core: CoreFile) -> list[str]:
    """Return the functions of the thread that died, innermost first."""
    found = [core.symbol_at(frame.pc) for frame in unwind(core, core.threads()[0])]
    return [symbol.name for symbol in found if symbol is not None]


def biases(core: CoreFile, crashed: Crash) -> dict[str, int]:
    """Return the bias of each module, with the names that the program's dl_iterate_phdr() had."""
    program = str(crashed.program)
    return {"" if each.path == program else each.path: each.bias for each in core.modules() if each.path[0] == "/"}


def told(crashed: Crash) -> dict[str, int]:
    return {path: bias for path, bias in crashed.modules.items() if path != VDSO}


# -- valgrind: no NT_FILE, no NT_AUXV, no NT_SIGINFO (coregrind/m_coredump/coredump-elf.c) ----------------------------


def test_modules_without_a_list_of_files_and_an_auxiliary_vector(crashed: Crash, tmp_path: Path) -> None:
    core = CoreFile(str(without(crashed.core, tmp_path / "vgcore", NT_FILE, NT_AUXV, NT_SIGINFO)))
    assert biases(core, crashed) == told(crashed)
    assert core.program is not None
    assert core.program.path == str(crashed.program)
    assert core.auxv == CoreFile(str(crashed.core)).auxv  # that on the stack is the kernel's own
    assert frames(core)[:2] == ["crash_die", "main"]
    assert answers.by_name(answers.answer(core, "triage"))["findings"][0]["kind"] == "fault"


def test_modules_whose_program_is_found_by_its_header(crashed: Crash, tmp_path: Path) -> None:
    """The stack has no auxiliary vector either. The program is the file whose DT_DEBUG the linker has set."""
    path = without(crashed.core, tmp_path / "core", NT_FILE, NT_AUXV)
    without_text(path, struct.pack("<QQ", AT_PHENT, 56))
    core = CoreFile(str(path))
    assert 25 not in core.auxv  # AT_RANDOM: nobody knows it
    known = {path: bias for path, bias in told(crashed).items() if path}
    assert {path: bias for path, bias in biases(core, crashed).items() if path in known} == known
    assert core.program is not None
    assert core.program.bias == crashed.modules[""]
    named = CoreFile(str(path), str(crashed.program))
    assert frames(named)[:2] == ["crash_die", "main"]


@pytest.mark.thorough("it runs valgrind")
@pytest.mark.parametrize("linked", ["-O0", "-static"])
def test_the_core_of_valgrind_itself(linked: str, tmp_path: Path) -> None:
    (tmp_path / "dies.c").write_text(
        "#include <stdlib.h>\n#include <string.h>\n"
        "__attribute__((noinline)) void lose(void) { memset(malloc(200), 1, 200); }\n"
        "__attribute__((noinline)) void wipe(void) { volatile char frame[16384];\n"
        "  for (size_t i = 0; i < sizeof frame; i++) frame[i] = 0;\n"
        '  __asm__ volatile("xor %%ecx, %%ecx; xor %%edi, %%edi; xor %%eax, %%eax" ::: "rax", "rcx", "rdi"); }\n'
        "__attribute__((noinline)) void die(int *at) { lose(); wipe(); *at = 1; }\n"
        "int main(void) { lose(); lose(); die(0); return 0; }\n"
    )
    program = compile_c(tmp_path / "dies.c", tmp_path / "dies", "-O0", linked)
    script = 'ulimit -c unlimited; exec "$@"'
    words = ["sh", "-c", script, "sh", _cache.tool("valgrind"), "-q", str(program)]
    assert subprocess.run(words, check=False, cwd=tmp_path, timeout=HANG, capture_output=True).returncode < 0
    (made,) = tmp_path.glob("vgcore*")
    core = CoreFile(str(made), str(program))
    assert frames(core)[:2] == ["die", "main"]
    assert answers.by_name(answers.answer(core, "triage"))["findings"][0]["kind"] == "fault"
    report = answers.answer(core, "findleaks")
    if linked == "-static":  # Valgrind does not replace this malloc
        assert report["totals"]["direct_count"] == 3
    else:
        assert not report["verdict"]["possible"]
        assert "Valgrind" in report["verdict"]["reason"]


# -- packers: the program is in anonymous memory, and NT_AUXV is that of the stub -------------------------------------


@pytest.fixture(scope="module")
def unpacked(crashed: Crash, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a core whose program is in no file: UPX unpacks it into anonymous memory, and corrects the auxiliary
    vector on the stack only."""

    def change(each: Note) -> Note:
        owner, kind, content = each
        if kind == NT_AUXV:
            pairs = struct.iter_unpack("<QQ", content)
            content = b"".join(struct.pack("<QQ", key, 0x1000 if key == AT_PHDR else value) for key, value in pairs)
        if kind == NT_FILE:
            content = _without_program(content, crashed.program)
        return owner, kind, content

    return with_notes(crashed.core, tmp_path_factory.mktemp("packed") / "core", change)


def _without_program(content: bytes, program: Path) -> bytes:
    count, page = struct.unpack_from("<QQ", content)
    ranges = [struct.unpack_from("<QQQ", content, 16 + 24 * number) for number in range(count)]
    paths = content[16 + 24 * count :].split(b"\0")
    kept = [(each, path) for each, path in zip(ranges, paths) if path != os.fsencode(program)]
    assert 0 < len(kept) < count
    head = struct.pack("<QQ", len(kept), page) + b"".join(struct.pack("<QQQ", *each) for each, _path in kept)
    return head + b"".join(path + b"\0" for _each, path in kept)


def test_a_program_that_was_unpacked_into_memory(unpacked: Path, crashed: Crash) -> None:
    alone = CoreFile(str(unpacked))
    assert alone.program is not None
    assert (alone.program.bias, alone.program.path) == (crashed.modules[""], str(crashed.program))
    assert all(piece.path is None for piece in alone.program.ranges)
    core = CoreFile(str(unpacked), str(crashed.program))
    assert core.program is not None
    assert core.program.file == str(crashed.program)
    assert core.program.problem is None
    for name in ("crash_object", "crash_die", "main"):
        symbol = core.lookup(name)
        assert symbol is not None
        assert symbol.address == crashed.symbols[name]
    assert frames(core)[:2] == ["crash_die", "main"]


def test_a_program_that_no_mapping_fits_is_refused_in_words(crashed: Crash, tmp_path: Path) -> None:
    registers = notes_of_one_thread()
    (tmp_path / "core").write_bytes(elf64_core([Memory(0x7000_0000_0000, bytes(8192))], registers))
    core = CoreFile(str(tmp_path / "core"), str(crashed.program))
    assert core.modules() == []
    assert any(f"{crashed.program} is not used as the program: " in each for each in core.notes)
    # One that the auxiliary vector leads to is used, because the user says so.
    named = CoreFile(str(crashed.core), "/bin/true")
    named.modules()
    assert named.program is not None
    assert named.program.file == "/bin/true"
    assert any("its symbols may be wrong" in each for each in named.notes)


def notes_of_one_thread() -> bytes:
    return note(1, prstatus64(7, [0] * 27, 11))


def test_a_program_at_its_own_addresses_needs_no_header_in_the_dump(tmp_path: Path) -> None:
    (tmp_path / "fixed.c").write_text("int value = 7; int main(void) { return value; }\n")
    program = compile_c(tmp_path / "fixed.c", tmp_path / "fixed", "-no-pie", "-Wl,--build-id=none")
    pieces = [
        Memory(vaddr & -4096, b"" if flags & 1 else bytes(size), size, flags)
        for vaddr, size, flags in segments(program)
    ]
    (tmp_path / "core").write_bytes(elf64_core(pieces, notes_of_one_thread()))
    core = CoreFile(str(tmp_path / "core"), str(program))
    symbol = core.lookup("main")
    assert symbol is not None
    printed = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    assert f"{symbol.address:016x} T main" in printed


def segments(program: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (address, bytes in whole pages, flags) of each PT_LOAD of a file."""
    data = program.read_bytes()
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for number in range(count):
        kind, flags, _at, vaddr, _physical, _size, memory, _align = struct.unpack_from(
            "<IIQQQQQQ", data, table + 56 * number
        )
        if kind == 1:
            yield vaddr, -(-(vaddr % 4096 + memory) // 4096) * 4096, flags


# -- NT_FILE is left out ----------------------------------------------------------------------------------------------


def test_mappings_without_names_are_not_called_anonymous(crashed: Crash, tmp_path: Path) -> None:
    core = CoreFile(str(without(crashed.core, tmp_path / "core", NT_FILE)))
    report = answers.answer(core, "maps", "-v")
    kinds = {int(row["start"], 16): row["kind"] for row in answers.by_name(report)["mappings"]}
    of_files = {start: name for start, _end, _flags, _offset, name in crashed.maps() if name is not None}
    data = next(start for start, name in of_files.items() if name.endswith("/data"))
    assert kinds[data] == "unknown"
    assert "anon" not in {kinds[start] for start, name in of_files.items() if start in kinds and ".so" in name}
    note = next(each for each in report["notes"] if "NT_FILE" in each)
    assert "which files were mapped" in note
    unknown = [row for row in answers.by_name(report)["mappings"] if row["kind"] == "unknown"]
    assert report["totals"]["memory"]["unnamed_bytes"] == sum(row["bytes"] for row in unknown) > 0
    whole = answers.answer(CoreFile(str(crashed.core)), "maps")
    assert whole["totals"]["memory"]["unnamed_bytes"] == 0
    assert not any("NT_FILE" in each for each in whole["notes"])


@pytest.mark.thorough("it maps 30,000 files")
def test_the_kernel_leaves_the_list_of_files_out(tmp_path: Path) -> None:
    limit = Path("/proc/sys/kernel/core_file_note_size_limit")
    size = int(limit.read_text()) if limit.exists() else 4 << 20
    name = "n" * 200
    count = size // (24 + len(str(tmp_path)) + 1 + len(name)) + 1000
    (tmp_path / "many.c").write_text(MANY)
    program = compile_c(tmp_path / "many.c", tmp_path / "many")
    script = 'ulimit -c unlimited; exec "$@"'
    words = ["sh", "-c", script, "sh", str(program), name, str(count)]
    assert subprocess.run(words, cwd=tmp_path, check=False, timeout=HANG).returncode < 0
    core = CoreFile(str(next(path for path in tmp_path.iterdir() if path.name.startswith("core"))))
    kinds = {row["kind"]: row["count"] for row in answers.by_name(answers.answer(core, "maps"))["kinds"]}
    assert kinds["unknown"] >= count
    assert kinds["anon"] < 100
    assert any("NT_FILE" in each and f"of {kinds['unknown']:,} mappings" in each for each in core.notes)


MANY = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (argc < 3 || ftruncate(file, 4096))
        return 1;
    for (int left = atoi(argv[2]); left > 0; left--)
        if (mmap(0, 4096, left & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED)
            return 2;
    abort();
}
"""


# -- delve: notes without an owner (delve 1.27, pkg/proc/native/dump_linux_amd64.go) ----------------------------------


def test_notes_without_an_owner(crashed: Crash, tmp_path: Path) -> None:
    path = with_notes(crashed.core, tmp_path / "core", lambda each: None if each[1] == NT_FILE else (b"", *each[1:]))
    core = CoreFile(str(path))
    assert {thread.tid: thread.registers["fs_base"] for thread in core.threads()} == crashed.threads
    assert core.pid == crashed.pid
    assert biases(core, crashed) == told(crashed)
    assert frames(core)[:2] == ["crash_die", "main"]


# -- LLDB's minidumps -------------------------------------------------------------------------------------------------


@pytest.mark.quick("shapes-MemoryList", "arenas-Memory64List")
@pytest.mark.parametrize("wide", [False, True], ids=["MemoryList", "Memory64List"])
@pytest.mark.parametrize("program", ["shapes", "arenas"])
def test_a_minidump_with_all_memory_is_a_dump(program: str, wide: bool, tmp_path: Path) -> None:
    made = cores.take(program)
    whole = CoreFile(str(made.core))
    (tmp_path / "lldb.dmp").write_bytes(minidump(whole, wide=wide))
    core = CoreFile(str(tmp_path / "lldb.dmp"))
    assert [(each.path, each.bias, each.build_id) for each in core.modules()] == [
        (each.path, each.bias, each.build_id) for each in whole.modules()
    ]
    assert core.threads()[0].tid == whole.threads()[0].tid
    assert sorted(each.tid for each in core.threads()) == sorted(each.tid for each in whole.threads())
    assert [frame.pc for frame in unwind(core, core.threads()[0])] == [
        frame.pc for frame in unwind(whole, whole.threads()[0])
    ]
    leaked = answers.by_name(answers.answer(core, "walk", "leakbuf"))["leakbuf"]
    assert {int(row["address"], 16) for row in leaked} == made.truth.leaked


def test_a_minidump_of_stacks_says_what_is_missing(tmp_path: Path) -> None:
    whole = CoreFile(str(cores.take("shapes").core))
    pointers = [thread.registers["rsp"] for thread in whole.threads()]
    stacks = minidump(whole, wide=False, only=lambda start, end: any(start <= each < end for each in pointers))
    (tmp_path / "stacks.dmp").write_bytes(stacks)
    done = answers.dmods("findleaks", tmp_path / "stacks.dmp")
    assert done.returncode == 4
    assert "no verdict: " in done.stdout
    assert "the minidump has stacks and no heap" in done.stderr
    assert "--style full" in done.stderr
    assert "minidump-2-core" not in done.stderr


@pytest.mark.parametrize("wide", [False, True], ids=["MemoryList", "Memory64List"])
def test_a_minidump_that_is_cut_gives_no_verdict(wide: bool, tmp_path: Path) -> None:
    """Its last memory is missing: the stack, or the list of all memory."""
    whole = CoreFile(str(cores.take("shapes").core))
    data = minidump(whole, wide=wide)
    (tmp_path / "cut.dmp").write_bytes(data[: len(data) * 9 // 10])
    report = answers.answer(CoreFile(str(tmp_path / "cut.dmp")), "findleaks")
    assert report["status"] == 4
    assert any("the minidump is cut" in each for each in report["notes"])


@pytest.mark.parametrize("value", quick.only([0xFFFFFFFF], [0, 0x7FFFFFF0, 0xFFFFFFFF]))
def test_damaged_minidumps_end_in_words(value: int, tmp_path: Path) -> None:
    """Each count, size and place of the header and the lists is wrong once. Memory is never more than the file's."""
    whole = CoreFile(str(cores.take("shapes").core))
    data = minidump(whole, wide=True)
    path, opened = tmp_path / "bad.dmp", 0
    places = [8, 12, *range(32, 32 + 12 * 8, 4), *range(len(data) - len(data) % 4096 - 64, len(data) - 64, 4096)]
    lists = [place for place in range(32, 32 + 12 * 8, 12) if struct.unpack_from("<I", data, place)[0] in (3, 9)]
    places += [struct.unpack_from("<I", data, place + 8)[0] + skip for place in lists for skip in (0, 4, 8, 16, 24)]
    for place in places:
        bad = bytearray(data)
        struct.pack_into("<I", bad, place, value)
        path.write_bytes(bad)
        try:
            core = CoreFile(str(path))
        except UserError:
            continue
        opened += 1
        assert sum(each.dumped for each in core.mappings()) <= len(data)
    assert opened > len(places) // 3


# -- hostile cores ----------------------------------------------------------------------------------------------------


def test_headers_and_vectors_in_all_memory_take_no_long_time() -> None:
    """Each of 5,000 mappings begins with a header of a file that spans all of them. Stacks are full of vectors."""
    began = time.process_time()
    extent = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 40, 1 << 40, 4096)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    pieces = [Memory(0x10_0000_0000 + 8192 * number, header + extent, 4096) for number in range(5000)]
    stack = 0x7000_0000_0000
    pieces.append(Memory(stack, struct.pack("<QQ", AT_PHENT, 56) * (4 << 16)))
    with tempfile.NamedTemporaryFile() as file:
        file.write(elf64_core(pieces, note(1, prstatus64(7, [stack] * 27, 11))))
        file.flush()
        core = CoreFile(file.name)
        assert core.modules() == []
        assert core.auxv == {}
    assert time.process_time() - began < HANG_CPU


# -- archives and CRIU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["", "gz", "xz"])
def test_a_core_in_a_tar_archive(form: str, crashed: Crash, tmp_path: Path) -> None:
    path = tmp_path / "dumps.tar"
    with tarfile.open(path, f"w:{form}") as archive:
        about = b"the dump of today"
        entry = tarfile.TarInfo("about.txt")
        entry.size = len(about)
        archive.addfile(entry, io.BytesIO(about))
        archive.add(crashed.core, "cores/core.17")
    done = answers.dmods("findleaks", path)
    assert done.returncode == 1
    assert "is a tar archive" in done.stderr
    command = next(line for line in done.stderr.splitlines() if "tar -xf" in line).strip().partition(";")[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)  # it is what the user is told to type
    assert CoreFile(str(tmp_path / "cores/core.17")).pid == crashed.pid


def test_images_of_criu(tmp_path: Path) -> None:
    """The first bytes are those that pycriu 3.17 knows: IMG_COMMON, then the magic of the image."""
    for name, magic in (("inventory.img", 1479618838), ("core-12.img", 1426405447)):
        (tmp_path / name).write_bytes(struct.pack("<II", 1414939417, magic))
    for path in (tmp_path, tmp_path / "core-12.img"):
        for command in ("findleaks", "triage"):
            done = answers.dmods(command, path)
            assert done.returncode == 1
            assert "of CRIU" in done.stderr
            assert f"coredump/coredump -i {tmp_path} -o ." in done.stderr
