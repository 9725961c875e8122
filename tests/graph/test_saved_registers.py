"""A register that an inner function saved on its stack belongs to the frame that uses it: tests/graph/saved.c.

The program tells how much each of its lists has. Where the registers are saved, gdb says as well.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.process.saved_registers import saved_registers
from dmods.process.unwind import unwind
from fixtures import answers
from tests.corekit import HERE, kernel_core


def dumped(where: Path, *flags: str, how: tuple[str, ...] = ()) -> Path:
    program = where / "saved"
    subprocess.run(["gcc", "-O2", *flags, str(HERE / "graph" / "saved.c"), "-o", str(program)], check=True)
    return kernel_core(program, where, *how)


def told(where: Path) -> list[tuple[int, int]]:
    lines = (line.split() for line in (where / "truth").read_text().splitlines())
    return [(int(size), int(count)) for size, count in lines]


@pytest.mark.parametrize(
    ("flags", "how", "names"),
    [
        ((), (), ("register rbx of frame 2 (main)", "register r12 of frame 2 (main)")),
        (("-g",), (), ("main: first", "main: second")),
        # The handler, its caller and the kernel's frame lie between.
        ((), ("signal",), ("register rbx of frame 3 (main)", "register r12 of frame 3 (main)")),
    ],
    ids=("no names", "names", "a signal"),
)
def test_a_saved_register_belongs_to_the_frame_that_uses_it(
    tmp_path: Path, flags: tuple[str, ...], how: tuple[str, ...], names: tuple[str, str]
) -> None:
    core = dumped(tmp_path, *flags, how=how)
    rows = {row["owner"]: row for row in answers.typed("owners", core)["tables"][0]["rows"]}
    lists = told(tmp_path)
    assert len(lists) == 2
    for name, (size, count) in zip(names, lists):
        assert name in rows
        assert (rows[name]["bytes"], rows[name]["count"], rows[name]["how"]) == (size, count, "alone")
        (root,) = rows[name]["roots"]
        assert root["name"].startswith("main in thread" if flags else name)


def test_registers_are_saved_where_gdb_says(tmp_path: Path) -> None:
    """gdb lists for each frame where it saved the registers of its caller."""
    core = dumped(tmp_path)
    target = CoreFile(str(core))
    (thread,) = target.threads()
    frames = unwind(target, thread)
    commands = [word for n in range(len(frames)) for word in ("-ex", f"frame {n}", "-ex", "info frame")]
    argv = ["gdb", "-nx", "-batch", "-ex", "set backtrace past-main on", *commands, str(tmp_path / "saved"), str(core)]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    parts = re.findall(r"Saved registers:\n((?: .*\n?)+)", shown)
    # The outermost frame has no caller, so gdb says nothing there.
    assert 3 < len(parts) in (len(frames), len(frames) - 1)
    preserved = {"rbx", "rbp", "r12", "r13", "r14", "r15"}
    said = [{(name, int(at, 16)) for name, at in re.findall(r"(\w+) at (0x\w+)", part)} for part in parts]
    ours = [set(frame.saved) for frame in frames[: len(parts)]]
    assert ours == [{(name, at) for name, at in each if name in preserved} for each in said]
    # What blocked() pushed is main's: middle() does not touch it.
    (mine,) = (each for each in saved_registers(frames) if each.address in {at for _name, at in frames[0].saved})
    assert (mine.register, mine.frame) == ("rbx", 2)
