"""Cores, compared with what the program itself said, /proc/PID/maps, nm and readelf."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile, find_executable
from dmods.errors import FaultError, UserError
from tests.corekit import HERE, Crash, Memory, compile_c, crash, elf64_core, file_note, kernel_core, note, prstatus64

GUARD_FLAGS = {"---": "r--"}  # gdb's gcore writes inaccessible memory as readable


@pytest.fixture(params=["kernel", "gcore"])
def dumped(request: pytest.FixtureRequest) -> Crash:
    found = request.getfixturevalue("crashed" if request.param == "kernel" else "gcored")
    assert isinstance(found, Crash)
    return found


def build_id(path: Path) -> str:
    text = subprocess.run(["readelf", "-n", str(path)], check=True, capture_output=True, text=True).stdout
    return text.partition("Build ID: ")[2].split()[0]


def test_mappings_are_those_of_proc_maps(crashed: Crash) -> None:
    core = CoreFile(str(crashed.core))
    found = [(m.start, m.end, m.flags, m.offset, m.path) for m in core.mappings() if m.start < 1 << 63]
    assert found == crashed.maps()


def test_mappings_of_a_gcore_core_are_those_of_proc_maps(gcored: Crash) -> None:
    core = CoreFile(str(gcored.core))
    found = {(m.start, m.end, m.flags, m.offset, m.path) for m in core.mappings() if m.start < 1 << 63}
    truth = {(a, b, GUARD_FLAGS.get(flags, flags), offset, path) for a, b, flags, offset, path in gcored.maps()}
    vvar = {entry for entry in truth - found if entry[4] is None and entry[2] == "r--"}  # unreadable for gcore
    assert found == truth - vvar
    assert len(vvar) <= 2


def test_threads_have_their_own_registers(dumped: Crash) -> None:
    core = CoreFile(str(dumped.core))
    threads = {thread.tid: thread.registers for thread in core.threads()}
    assert threads.keys() == dumped.threads.keys()
    for tid, self in dumped.threads.items():
        assert threads[tid]["fs_base"] == self
        if tid != dumped.pid or dumped.core.name != "core.gdb":  # gdb's core: it waits in the C library
            assert (threads[tid]["r12"], threads[tid]["r13"]) == (tid, self)
    assert core.pid == dumped.pid


def test_who_died_and_of_what(crashed: Crash) -> None:
    core = CoreFile(str(crashed.core))
    first, *others = core.threads()
    assert first.tid == crashed.pid
    assert first.name == "crash"
    assert first.signal is not None
    assert (first.signal.number, first.signal.code, first.signal.address) == (11, 1, 0xDEAD000)
    assert all(thread.signal is None for thread in others)
    symbol = core.symbol_at(first.registers["rip"])
    assert symbol is not None
    assert symbol.name == "crash_die"


def test_modules_are_the_dynamic_linkers(dumped: Crash) -> None:
    core = CoreFile(str(dumped.core))
    found = {m.path: m for m in core.modules()}
    truth = {path or str(dumped.program): bias for path, bias in dumped.modules.items()}
    truth = {"[vdso]" if "vdso" in path else os.path.realpath(path): bias for path, bias in truth.items()}
    assert {path: module.bias for path, module in found.items()} == truth
    for path, module in found.items():
        assert module.problem is None
        assert path == "[vdso]" or module.build_id == build_id(Path(path))
    assert core.executable == str(dumped.program)
    assert core.program is found[str(dumped.program)]
    assert core.notes == []


def test_symbols_both_ways(dumped: Crash) -> None:
    core = CoreFile(str(dumped.core))
    for name, address in dumped.symbols.items():
        if not name.startswith("["):
            found = core.lookup(name)
            assert found is not None, name
            assert found.address == address
            at = core.symbol_at(address + min(3, found.size - 1))
            assert at is not None
            assert (at.name, at.address) == (name, address)
    assert core.lookup("no_such_symbol") is None


def test_memory_is_read_from_the_dump_and_the_files(dumped: Crash) -> None:
    core = CoreFile(str(dumped.core))
    assert core.read(dumped.symbols["crash_object"], 12) == b"\1\0\0\0\2\0\0\0\3\0\0\0"
    assert core.read(dumped.symbols["crash_library_object"], 4) == b"c\0\0\0"
    assert core.read(dumped.symbols["[data]"], 12) == b"data file\n\0\1"
    assert core.read(dumped.symbols["[shared]"], 13) == b"shared memory"
    for module in core.modules():
        for piece in module.ranges:
            if module.file is not None and "x" in piece.flags:
                with open(module.file, "rb") as file:
                    file.seek(piece.offset)
                    text = file.read(piece.size)
                assert core.read(piece.start, len(text)) == text
    with pytest.raises(FaultError):
        core.read(0xDEAD000, 1)
    for address, size in ((0, 8), (-8, 8), (2**64 - 4, 8), (2**64, 8), (2**70, 1)):
        with pytest.raises(FaultError):
            core.read(address, size)


def test_the_executable_is_found(dumped: Crash) -> None:
    path, sentence = find_executable(str(dumped.core))
    assert path == str(dumped.program)
    assert "build-id matches" in sentence


def test_state_changes_when_the_core_does(crashed: Crash, tmp_path: Path) -> None:
    copy = shutil.copy(crashed.core, tmp_path / "copy")
    before = CoreFile(copy).state()
    assert before == CoreFile(copy).state()
    os.utime(copy, ns=(1, 1))
    assert CoreFile(copy).state() != before


def test_a_moved_core_of_files_that_are_gone(tmp_path: Path) -> None:
    """Program and library are missing. The memory in the dump can still be read, and one note says what is missing."""
    made = crash(tmp_path, "kernel")
    (tmp_path / "away").mkdir()
    made.program.rename(tmp_path / "away" / "crash")
    (tmp_path / "libcrash.so.1").unlink()
    core = CoreFile(str(made.core))
    gone = [m for m in core.modules() if m.problem]
    assert sorted(m.name for m in gone) == ["crash", "libcrash.so.1"]
    assert core.read(made.symbols["crash_object"], 4) == b"\1\0\0\0"
    assert core.symbol_at(made.symbols["main"]) is None
    assert len(core.notes) == 1
    assert "2 of" in core.notes[0]
    assert find_executable(str(made.core))[0] is None

    given = CoreFile(str(made.core), executable=str(tmp_path / "away" / "crash"))
    assert given.evaluate("main") == made.symbols["main"]
    assert given.read(made.symbols["main"], 1)

    wrong = CoreFile(str(made.core), executable="/bin/true")
    assert any("build-id" in text and "true" in text for text in (wrong.modules(), wrong.notes)[1])
    assert wrong.program is not None
    assert wrong.program.file == "/bin/true"
    with pytest.raises(FaultError):
        wrong.read(made.symbols["main"], 1)


def test_a_rebuilt_program_is_not_believed(tmp_path: Path) -> None:
    made = crash(tmp_path, "kernel")
    text = (HERE / "crash.c").read_text().replace("crash_object[50]", "crash_object[60]")
    (tmp_path / "other.c").write_text(text)
    made.program.unlink()
    compile_c(tmp_path / "other.c", made.program, str(tmp_path / "libcrash.so.1"), "-Wl,-rpath,$ORIGIN", "-pthread")
    core = CoreFile(str(made.core))
    program = core.program
    assert program is not None
    assert program.file is None
    assert program.problem is not None
    assert build_id(made.program) in program.problem
    path, sentence = find_executable(str(made.core))
    assert path is None
    assert "build-id" in sentence


def test_a_sysroot_is_searched_alone(crashed: Crash, tmp_path: Path) -> None:
    copy = tmp_path / str(crashed.program).lstrip("/")
    copy.parent.mkdir(parents=True)
    shutil.copy(crashed.program, copy)
    core = CoreFile(str(crashed.core), sysroot=str(tmp_path))
    assert core.program is not None
    assert core.program.file == str(copy)
    assert [m.name for m in core.modules() if m.file] == ["crash"]


def test_segments_left_out_are_noted(tmp_path: Path) -> None:
    """coredump_filter 0x10 keeps only ELF headers.

    Stacks, heap and .data are missing; the text comes from the files.
    """
    made = crash(tmp_path, "kernel", coredump_filter=0x10)
    core = CoreFile(str(made.core))
    core.image()
    writable = [m for m in made.maps() if "w" in m[2]]
    assert any(
        text.startswith(f"{len(writable)} of ") and "leaks may be over-reported" in text for text in core.notes
    ), core.notes
    assert core.symbol_at(made.symbols["main"]) is not None
    with pytest.raises(FaultError):
        core.read(made.symbols["crash_object"], 4)


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie"], ["-no-pie"], ["-s"], ["-Wl,--build-id=none"]])
def test_programs_of_every_kind(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "abort.c").write_text("#include <stdlib.h>\nint marker = 5;\nint main(void) { marker++; abort(); }\n")
    program = compile_c(tmp_path / "abort.c", tmp_path / "abort", *flags)
    core = CoreFile(str(kernel_core(program, tmp_path)))
    core.image()
    assert core.program is not None
    assert core.program.file == str(program)
    assert core.notes == []
    assert core.threads()[0].signal is not None
    assert core.threads()[0].signal.number == 6
    if flags != ["-s"]:
        nm = subprocess.run(["nm", str(program)], check=True, capture_output=True, text=True).stdout
        address = next(int(line.split()[0], 16) for line in nm.splitlines() if line.endswith(" D marker"))
        assert core.evaluate("marker") == address + core.program.bias
        assert core.read(core.evaluate("marker"), 4) == b"\6\0\0\0"


def test_a_name_is_looked_up_where_the_dynamic_linker_would(tmp_path: Path) -> None:
    """Two libraries define the name. The first one linked wins, wherever the kernel put them."""
    libraries = []
    for number in range(4):
        (tmp_path / "lib.c").write_text(f"int twice = {number};\n")
        name = f"lib{'dbca'[number]}.so"
        libraries.append(str(compile_c(tmp_path / "lib.c", tmp_path / name, "-shared", "-fPIC", f"-Wl,-soname,{name}")))
    (tmp_path / "p.c").write_text("#include <stdlib.h>\nextern int twice;\nint main(void) { abort(); }\n")
    program = compile_c(tmp_path / "p.c", tmp_path / "p", "-Wl,--no-as-needed", *libraries, "-Wl,-rpath,$ORIGIN")
    core = CoreFile(str(kernel_core(program, tmp_path)))
    found = core.lookup("twice")
    assert found is not None
    assert found.module == "libd.so"
    assert core.read(found.address, 4) == bytes(4)
    other = core.lookup("libc.so`twice")
    assert other is not None
    assert core.read(other.address, 4) == b"\2\0\0\0"


def test_without_elf_headers_in_the_core_files_are_believed_with_a_note(tmp_path: Path) -> None:
    """With coredump_filter 0x23 nothing proves which files were mapped."""
    made = crash(tmp_path, "kernel", coredump_filter=0x23)
    core = CoreFile(str(made.core))
    assert core.evaluate("main") == made.symbols["main"]
    assert {m.path: m.bias for m in core.modules() if m.path != "[vdso]"} == {
        os.path.realpath(path or str(made.program)): bias for path, bias in made.modules.items() if "vdso" not in path
    }
    assert len([text for text in core.notes if "has no proof" in text]) == 1
    assert "unproven" in find_executable(str(made.core))[1]


def test_a_core_without_the_list_of_files(crashed: Crash, tmp_path: Path) -> None:
    """The dynamic linker's own list gives the same modules as NT_FILE."""
    data = crashed.core.read_bytes()
    assert data.count(b"ELIF") == 1  # NT_FILE, little-endian
    other = tmp_path / "core"
    other.write_bytes(data.replace(b"ELIF", b"EXIF"))
    core, whole = CoreFile(str(other)), CoreFile(str(crashed.core))

    def places(one: CoreFile) -> dict[str, tuple[int, int, object]]:
        return {os.path.realpath(m.path): (m.start, m.bias, m.build_id) for m in one.modules() if m.path != "[vdso]"}

    # Here execve() got the program's whole path.
    assert places(core) == places(whole)
    assert core.evaluate("main") == crashed.symbols["main"]
    assert core.read(core.evaluate("main"), 64) == whole.read(whole.evaluate("main"), 64)


def test_a_32_bit_core(tmp_path: Path) -> None:
    """A program of six instructions needs no 32-bit C library."""
    (tmp_path / "small.c").write_text(
        "int answer = 42;\n"
        'void _start(void) { __asm__ volatile("movl $0x11223344, %%esi; movl $0x55667788, %%edi;"\n'
        '    "movl $1, 0xdead000" ::: "esi", "edi", "memory"); }\n'
    )
    program = compile_c(
        tmp_path / "small.c", tmp_path / "small", "-m32", "-nostdlib", "-ffreestanding", "-static", "-no-pie",
        "-fno-pic",
    )  # fmt: skip
    core = CoreFile(str(kernel_core(program, tmp_path)))
    assert core.arch.name == "i386"
    registers = core.threads()[0].registers
    assert (registers["esi"], registers["edi"]) == (0x11223344, 0x55667788)
    assert core.threads()[0].signal is not None
    assert core.threads()[0].signal.address == 0xDEAD000
    symbol = core.symbol_at(registers["eip"])
    assert symbol is not None
    assert symbol.name == "_start"
    assert core.read(core.evaluate("answer"), 4) == b"\x2a\0\0\0"


def test_an_aarch64_core(tmp_path: Path) -> None:
    registers = [*range(100, 131), 0x7000, 0x4321, 0]
    notes = note(1, prstatus64(17, registers, 6)) + note(0x401, (0xABCDEF).to_bytes(8, "little"), b"LINUX")
    (tmp_path / "core").write_bytes(elf64_core([Memory(0x7000, b"stack...")], notes, machine=183))
    core = CoreFile(str(tmp_path / "core"))
    (thread,) = core.threads()
    assert core.arch.name == "aarch64"
    assert (thread.registers["x0"], thread.registers["x30"], thread.registers["pc"]) == (100, 130, 0x4321)
    assert thread.registers[core.arch.thread_pointer] == 0xABCDEF
    assert core.read(thread.registers[core.arch.sp], 5) == b"stack"


def test_more_segments_than_the_header_can_count(tmp_path: Path) -> None:
    memory = [Memory(0x10000 + 0x2000 * index, index.to_bytes(8, "little")) for index in range(70_000)]
    (tmp_path / "core").write_bytes(elf64_core(memory, note(1, prstatus64(1, [0] * 27)), xnum=True))
    core = CoreFile(str(tmp_path / "core"))
    assert len(core.mappings()) == 70_000
    assert int.from_bytes(core.read(0x10000 + 0x2000 * 69_999, 8), "little") == 69_999
    assert core.notes == []


def test_files_that_the_program_headers_leave_out(tmp_path: Path) -> None:
    """A mapping that only NT_FILE knows is there, read-only. A load is split where a file ends."""
    (tmp_path / "data").write_bytes(b"x" * 0x3000)
    path = str(tmp_path / "data")
    files = file_note([(0x10000, 0x11000, 0, path), (0x21000, 0x23000, 1, path)])
    memory = [Memory(0x20000, b"a" * 0x2000)]
    (tmp_path / "core").write_bytes(elf64_core(memory, note(1, prstatus64(1, [0] * 27)) + note(0x46494C45, files)))
    os.utime(path, (1, 1))
    core = CoreFile(str(tmp_path / "core"))
    assert [(m.start, m.end, m.flags, m.offset, m.path, m.dumped) for m in core.mappings()] == [
        (0x10000, 0x11000, "r--", 0, path, 0),
        (0x20000, 0x21000, "rw-", 0, None, 0x1000),
        (0x21000, 0x22000, "rw-", 0x1000, path, 0x1000),
        (0x22000, 0x23000, "r--", 0x2000, path, 0),
    ]
    assert core.read(0x10000, 4) == b"xxxx"
    assert core.read(0x21FFE, 4) == b"aaxx"
    os.utime(path)
    (tmp_path / "core").touch()
    os.utime(path, (2**31, 2**31))
    late = CoreFile(str(tmp_path / "core"))
    late.image()
    assert any("changed after" in text for text in late.notes)


def test_an_unknown_program_is_a_users_error(crashed: Crash, tmp_path: Path) -> None:
    for path, why in ((str(tmp_path / "none"), "cannot be read"), (str(crashed.where / "data"), "not an ELF file")):
        with pytest.raises(UserError) as caught:
            CoreFile(str(crashed.core), executable=path)
        assert why in caught.value.what
