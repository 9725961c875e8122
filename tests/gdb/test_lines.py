"""Source lines in gdb: debug information is also searched where gdb is told to search."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from dmods.modules.elf import build_id, parse
from tests.corekit import kernel_core
from tests.gdb.conftest import SOURCE, Gdb, waiting


def line_of(text: str) -> int:
    """Return the number of the line in prog.c that holds the text."""
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


def main_frame(stdout: str) -> str:
    return next(line for line in stdout.splitlines() if " main+0x" in line)


def test_debug_file_directory_is_searched(gdb: Gdb, program: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "prog"
    shutil.copy(program, stripped)
    data = stripped.read_bytes()

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    identity = build_id(parse(read, ""), read)
    assert identity is not None
    folder = tmp_path / "debug" / ".build-id" / identity[:2]
    folder.mkdir(parents=True)
    debug = folder / f"{identity[2:]}.debug"
    subprocess.run(["objcopy", "--only-keep-debug", stripped, debug], check=True)
    subprocess.run(["strip", "--strip-debug", stripped], check=True)
    (tmp_path / "run").mkdir()
    core = kernel_core(stripped, tmp_path / "run", "abort")
    without = gdb("-x", "heapcmds.py", core, "-ex", "findstack")
    assert "prog.c" not in main_frame(without.stdout), without.stderr
    folders = f"/nonexistent:{tmp_path}/debug"
    found = gdb("-iex", f"set debug-file-directory {folders}", "-x", "heapcmds.py", core, "-ex", "findstack")
    line = re.search(r"\[prog\.c:(\d+)\]$", main_frame(found.stdout))
    assert line is not None, found.stdout + found.stderr
    assert int(line[1]) == line_of("abort();")


def test_a_living_process_has_source_lines(gdb: Gdb, program: Path) -> None:
    with waiting(program) as pid:
        done = gdb("-x", "heapcmds.py", "-p", pid, "-ex", "findstack")
    assert main_frame(done.stdout).endswith(f"[prog.c:{line_of('pause();')}]"), done.stderr
