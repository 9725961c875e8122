"""Source lines and inlined functions, compared with binutils' addr2line and with gdb's backtrace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.modules.elf import build_id, parse
from dmods.modules.lines import SourceFrame, source_lines
from dmods.process.unwind import unwind
from fixtures import answers, cores
from fixtures._cache import tool
from tests.corekit import compile_c, kernel_core

SOURCE = """

volatile int sink;
static inline __attribute__((always_inline)) void deepest(int n) {
    sink = n;
    asm volatile("ud2");
    sink = n + 1;
}
static inline __attribute__((always_inline)) void deeper(int n) {
    sink = n;
    deepest(n + 1);
    sink = n;
}
__attribute__((noinline)) void crash(int n) {
    sink = n;
    deeper(n + 1);
    sink = n;
}
int main(int argc, char **argv) {
    crash(argc);
    return sink;
}
"""
# innermost first: (function, line)
CRASH = [("deepest", 6), ("deeper", 11), ("crash", 16)]


def addr2line(path: str, addresses: list[int]) -> list[list[tuple[str, Optional[str], Optional[int]]]]:
    """Return (function, path, line) for each address, innermost first, by binutils."""
    argv = ["addr2line", "-a", "-i", "-f", "-C", "-e", path, *map(hex, addresses)]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    found: list[list[tuple[str, Optional[str], Optional[int]]]] = []
    name = ""
    for line in out:
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            found.append([])
            name = ""
        elif not name:
            name = line
        else:
            place, _, number = re.sub(r" \(discriminator \d+\)$", "", line).rpartition(":")
            found[-1].append((name, None if place == "??" else place, int(number) if number.isdecimal() else None))
            name = ""
    return found


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[Path, Path]:
    """Return the program and its core. A test may change the program's file."""
    (tmp_path / "p.c").write_text(SOURCE)
    made = compile_c(tmp_path / "p.c", tmp_path / "p", "-O2")
    (tmp_path / "run").mkdir()
    return made, kernel_core(made, tmp_path / "run")


def crash_frames(target: CoreFile) -> list[SourceFrame]:
    """Return the source frames of the function ``crash``."""
    lines = source_lines(target)
    frames = unwind(target, target.threads()[0])
    found = [lines.frames_at(frame.code_address, exact=True) for frame in frames]
    return next((chain for chain in found if chain and chain[-1].function == "crash"), [])


def as_pairs(frames: list[SourceFrame]) -> list[tuple[Optional[str], Optional[int]]]:
    return [(frame.function, frame.line) for frame in frames]


def identity(path: Path) -> str:
    data = path.read_bytes()

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    found = build_id(parse(read, ""), read)
    assert found is not None
    return found


@pytest.mark.parametrize("mode", ["handler", "threads"])
def test_every_frame_is_where_addr2line_says(mode: str) -> None:
    """Lines are compared everywhere. Names are compared where binutils has them from the debug information."""
    core = cores.take("frames", mode=mode)
    target = CoreFile(str(core.core))
    lines = source_lines(target)
    module = target.program
    assert module is not None
    assert module.file is not None
    addresses = {
        frame.code_address
        for thread in target.threads()
        for frame in unwind(target, thread)
        if any(frame.code_address in piece for piece in module.ranges)
    }
    ordered = sorted(addresses)
    truth = addr2line(module.file, [address - module.bias for address in ordered])
    compared = 0
    for address, expected in zip(ordered, truth):
        frames = lines.frames_at(address, exact=True)
        if not frames:
            assert expected[0][1:] == (None, None)  # _start: crt1.o has no debug information
            continue
        compared += 1
        assert [(f.function, os.path.normpath(f.file or ""), f.line) for f in frames] == [
            (name.removesuffix(".cold"), os.path.normpath(path or ""), line) for name, path, line in expected
        ]
        assert lines.frames_at(address + 1, exact=False) == frames
    assert compared >= 4


def test_inlined_functions_are_those_of_gdbs_backtrace(crashed: tuple[Path, Path]) -> None:
    made, core = crashed
    script = """
import gdb
frame, found = gdb.newest_frame(), []
while frame is not None:
    sal = frame.find_sal()
    if sal.symtab is not None:
        found.append([frame.name(), sal.symtab.filename.rsplit('/', 1)[-1], sal.line, frame.type() == gdb.INLINE_FRAME])
    frame = frame.older()
import json
print('ORACLE ' + json.dumps(found))
"""
    argv = [tool("gdb"), "-nx", "-batch", "-iex", "set debuginfod enabled off", str(made), str(core)]
    out = subprocess.run([*argv, "-ex", "python " + script], capture_output=True, text=True, check=True).stdout
    told = json.loads(next(line for line in out.splitlines() if line.startswith("ORACLE "))[len("ORACLE ") :])
    target = CoreFile(str(core))
    found = [
        [frame.function, os.path.basename(frame.file or ""), frame.line, number < len(chain) - 1]
        for each in unwind(target, target.threads()[0])
        for chain in [source_lines(target).frames_at(each.code_address, exact=True)]
        for number, frame in enumerate(chain)
    ]
    # gdb's backtrace ends at main.
    assert found[: len(told)] == told
    assert [(name, line) for name, _file, line, _inlined in told[: len(CRASH)]] == CRASH
    assert [inlined for *_rest, inlined in told] == [True, True, False, False]


def test_findstack_shows_lines_in_text_and_json(crashed: tuple[Path, Path]) -> None:
    _made, core = crashed
    argv = [sys.executable, "-m", "dmods", "findstack", str(core)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    at = next(n for n, line in enumerate(text) if "crash+0x" in line)
    assert text[at - 2].strip() == "deepest (inlined)  [p.c:6]"
    assert text[at - 1].strip() == "deeper (inlined)  [p.c:11]"
    assert re.fullmatch(r"0x[0-9a-f]+ 0x[0-9a-f]+ crash\+0x[0-9a-f]+  \[p\.c:16\]", text[at])
    column = text[at].index("crash")
    assert text[at - 1].index("deeper") == text[at - 2].index("deepest") == column
    answer: dict[str, Any] = json.loads(
        subprocess.run([*argv, "--json"], capture_output=True, text=True, check=True).stdout
    )
    stack = answer["tables"][0]["rows"][0]["stack"]
    frame = next(each for each in stack if each["name"].startswith("crash+"))
    path = str(core.parent.parent / "p.c")
    assert frame["source"] == {"file": path, "line": 6}
    assert frame["inlined"] == [
        {"name": "deepest", "source": {"file": path, "line": 6}, "called_from": {"file": path, "line": 11}},
        {"name": "deeper", "source": {"file": path, "line": 11}, "called_from": {"file": path, "line": 16}},
    ]
    assert answer["totals"]["frames"] == len(stack)


def separate(made: Path) -> Path:
    """Move the debug information of a program into a file of its own, and return that file."""
    debug = made.with_suffix(".debug")
    subprocess.run(["objcopy", "--only-keep-debug", str(made), str(debug)], check=True)
    subprocess.run(["strip", "--strip-debug", str(made)], check=True)
    return debug


def test_a_separate_file_is_found_by_build_id_below_the_sysroot(crashed: tuple[Path, Path], tmp_path: Path) -> None:
    made, core = crashed
    name = identity(made)
    debug = separate(made)
    assert crash_frames(CoreFile(str(core))) == []
    place = tmp_path / "root/usr/lib/debug/.build-id" / name[:2]
    place.mkdir(parents=True)
    debug.rename(place / f"{name[2:]}.debug")
    inside = tmp_path / "root" / made.relative_to("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, inside)
    target = CoreFile(str(core), sysroot=str(tmp_path / "root"))
    assert as_pairs(crash_frames(target)) == CRASH
    assert not any("source lines" in note for note in target.notes)


def test_a_separate_file_is_found_by_its_debuglink_if_its_checksum_is_right(crashed: tuple[Path, Path]) -> None:
    made, core = crashed
    debug = separate(made)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(made)], check=True)
    assert as_pairs(crash_frames(CoreFile(str(core)))) == CRASH
    with debug.open("ab") as file:
        file.write(b"\0")
    target = CoreFile(str(core))
    assert crash_frames(target) == []
    (note,) = [note for note in target.notes if note.startswith("source lines: ")]
    assert str(debug) in note
    assert "checksum" in note


def test_what_a_debuginfod_client_has_downloaded_is_used(
    crashed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, core = crashed
    name = identity(made)
    debug = separate(made)
    for variable, folder in (
        ("DEBUGINFOD_CACHE_PATH", tmp_path / "own"),
        ("XDG_CACHE_HOME", tmp_path / "xdg"),
        ("HOME", tmp_path / "home"),
    ):
        with monkeypatch.context() as patch:
            for other in ("DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME"):
                patch.delenv(other, raising=False)
            patch.setenv("HOME", str(tmp_path / "empty"))
            patch.setenv(variable, str(folder))
            assert crash_frames(CoreFile(str(core))) == []
            below = {"DEBUGINFOD_CACHE_PATH": "", "XDG_CACHE_HOME": "debuginfod_client"}
            place = folder / below.get(variable, ".cache/debuginfod_client") / name
            place.mkdir(parents=True)
            (place / "debuginfo").touch()  # the client's note that the server has no such file
            assert crash_frames(CoreFile(str(core))) == []
            shutil.copy(debug, place / "debuginfo")
            assert as_pairs(crash_frames(CoreFile(str(core)))) == CRASH


@pytest.mark.parametrize("place", ["debuginfod", "build-id", "link"])
def test_a_function_has_its_name_where_separate_debug_information_is(
    crashed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The program has lost all symbols. The separate file names the function and those that are inlined in it."""
    made, core = crashed
    name = identity(made)
    whole = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True).stdout
    debug = separate(made)
    subprocess.run(["strip", "--strip-all", str(made)], check=True)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    words: list[object] = ["findstack", core]
    assert "crash+0x" not in answers.printed(*words)
    if place == "debuginfod":
        (tmp_path / "cache" / name).mkdir(parents=True)
        debug.rename(tmp_path / "cache" / name / "debuginfo")
    elif place == "build-id":
        inside = tmp_path / "root" / made.relative_to("/")
        inside.parent.mkdir(parents=True)
        shutil.copy(made, inside)
        folder = tmp_path / "root/usr/lib/debug/.build-id" / name[:2]
        folder.mkdir(parents=True)
        debug.rename(folder / f"{name[2:]}.debug")
        words += ["--sysroot", tmp_path / "root"]
    else:
        subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(made)], check=True)
    text = [line.strip() for line in answers.printed(*words).splitlines()]
    at = next(n for n, line in enumerate(text) if re.search(r"\bcrash\+0x", line))
    assert [line.partition(" ")[0] for line in text[at - 2 : at]] == ["deepest", "deeper"]
    target = CoreFile(str(core), sysroot=str(tmp_path / "root") if place == "build-id" else None)
    found = target.lookup("crash")
    module = target.program
    assert found is not None
    assert module is not None
    assert int(next(line for line in whole.splitlines() if line.endswith(" crash")).split()[0], 16) == (
        found.address - module.bias
    )


def test_debug_information_of_another_build_is_not_used(crashed: tuple[Path, Path], tmp_path: Path) -> None:
    made, core = crashed
    name = identity(made)
    separate(made)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "p.c"
    other.write_text("\n\n" + SOURCE)
    wrong = compile_c(other, tmp_path / "other" / "p", "-O2")
    place = tmp_path / "root/usr/lib/debug/.build-id" / name[:2]
    place.mkdir(parents=True)
    shutil.copy(wrong, place / f"{name[2:]}.debug")
    inside = tmp_path / "root" / made.relative_to("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, inside)
    target = CoreFile(str(core), sysroot=str(tmp_path / "root"))
    assert crash_frames(target) == []
    assert any("source lines" in note and "build-id" in note for note in target.notes)


def test_no_file_is_opened_before_somebody_asks(crashed: tuple[Path, Path]) -> None:
    """The debug information is replaced by garbage. A command that shows no stack does not notice."""
    made, core = crashed
    debug = separate(made)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(made)], check=True)
    debug.write_bytes(b"\x7fELF" + bytes(100))
    target = CoreFile(str(core))
    lines = source_lines(target)
    frames = unwind(target, target.threads()[0])
    assert target.symbol_at(frames[-1].pc) is not None
    assert not any("source lines" in note for note in target.notes)
    for frame in frames:
        lines.frames_at(frame.code_address, exact=True)
    assert any("source lines" in note for note in target.notes)


def test_the_number_of_lookups_is_bounded(crashed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmods.modules.lines._MAX_LOOKUPS", 2)
    target = CoreFile(str(crashed[1]))
    lines = source_lines(target)
    frames = unwind(target, target.threads()[0])
    found = [lines.frames_at(frame.code_address, exact=True) for frame in frames]
    assert [bool(each) for each in found] == [True, True] + [False] * (len(found) - 2)
    assert [note for note in target.notes if "source lines" in note] == [
        "source lines: only the first 2 addresses are looked up"
    ]
    assert lines.frames_at(frames[0].code_address, exact=True) == found[0]


def test_an_address_in_no_module_has_no_lines(crashed: tuple[Path, Path]) -> None:
    lines = source_lines(CoreFile(str(crashed[1])))
    for address in (0, 1, 1 << 63, (1 << 64) - 1):
        assert lines.frames_at(address, exact=True) == []
        assert lines.frames_at(address, exact=False) == []
