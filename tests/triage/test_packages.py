"""The package of a file, against dpkg's own answer, and by the note that other distributions write."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest

from dmods.machine.packages import package_of


@pytest.mark.parametrize("path", ["/usr/bin/gdb", "/bin/sh"])
def test_dpkg_says_the_same(path: str) -> None:
    real = str(Path(path).resolve())
    merged = (real, real[4:] if real.startswith("/usr/") else f"/usr{real}")
    asked = [subprocess.run(["dpkg", "-S", each], capture_output=True, text=True, check=False) for each in merged]
    owner = next(done.stdout.split(":")[0] for done in asked if done.returncode == 0)
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", owner], capture_output=True, text=True, check=True)
    assert package_of(path) == f"{owner} {done.stdout}"


def test_the_programs_own_note_comes_first(tmp_path: Path) -> None:
    told = json.dumps({"type": "rpm", "name": "shop", "version": "1.2-3.fc40"}).encode() + b"\0"
    note = struct.pack("<III", 4, len(told), 0xCAFE1A7E) + b"FDO\0" + told + bytes(-len(told) % 4)
    (tmp_path / "note").write_bytes(note)
    (tmp_path / "shop.c").write_text("int main(void) { return 0; }")
    program = tmp_path / "shop"
    subprocess.run(["gcc", str(tmp_path / "shop.c"), "-o", str(program)], check=True)
    assert package_of(str(program)) is None
    add = f"--add-section=.note.package={tmp_path / 'note'}"
    subprocess.run(["objcopy", add, "--set-section-flags", ".note.package=alloc,readonly", str(program)], check=True)
    assert package_of(str(program)) == "shop 1.2-3.fc40"
