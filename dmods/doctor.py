"""What is installed here, whether it works together, and what a core lacks. Each finding comes with what would help.

gdb and drgn are asked as a user would ask them: by running what PATH finds.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    from dmods.target import Target

ROOT = Path(__file__).resolve().parents[1]
_PATIENCE = 60  # seconds for a debugger to start

# Said by the Python that is asked, wherever dmods and what it needs may be: as gdbext/heapcmds.py has it.
_PROBE = """
import glob, json, sys
sys.path += [{root!r}] + glob.glob({root!r} + "/.venv/lib/python3*/site-packages")
said = {{"python": "%d.%d.%d" % sys.version_info[:3]}}
for name in {names!r}:
    try:
        __import__(name)
        said[name] = True
    except Exception as error:
        said[name] = "%s: %s" % (type(error).__name__, error)
print("dmods:" + json.dumps(said))
"""


class Finding(NamedTuple):
    """``found`` is a line; ``help`` is what to do, "" where all is well."""

    what: str
    found: str
    help: str = ""


def installation() -> Iterator[Finding]:
    """This Python, the engine, gdb, drgn, and where cores go."""
    yield Finding("python", f"{sys.version.split()[0]} ({sys.executable})")
    for name in ("dmods._engine", "elftools"):
        yield _importable(name)
    yield from _gdb()
    yield from _drgn()
    yield from _dumping()


def _set_up() -> str:
    script = ROOT / "scripts" / "setup"
    return f"run {script}" if script.exists() else "pip install dmods again, with the Python that is to use it"


def _importable(name: str) -> Finding:
    shown = "engine" if name == "dmods._engine" else name
    try:
        module = __import__(name, fromlist=["__version__"])
    except ImportError as error:
        return Finding(shown, f"cannot be loaded: {error}", _set_up())
    return Finding(shown, f"{module.__version__} ({module.__file__})")


def _gdb() -> Iterator[Finding]:
    gdb = shutil.which("gdb")
    if gdb is None:
        yield Finding("gdb", "not there", "apt-get install gdb; or without a debugger: dmods NAME CORE")
        return
    yield Finding("gdb", f"{_first_line([gdb, '--version'])} ({gdb})")
    code = _PROBE.format(root=str(ROOT), names=("dmods._engine", "elftools"))
    yield _probed("gdb's own Python", [gdb, "-nx", "-nh", "-batch", "-ex", f"python exec({code!r})"])


def _drgn() -> Iterator[Finding]:
    beside = Path(sys.executable).with_name("drgn")
    drgn = str(beside) if beside.exists() else shutil.which("drgn")
    if drgn is None:
        yield Finding("drgn", "not there", "for kernel dumps: pip install drgn")
        return
    version = _first_line([drgn, "--version"]).partition(" (using")[0]
    yield Finding("drgn", f"{version} ({drgn})")
    python = _interpreter(drgn)
    if python is not None:
        code = _PROBE.format(root=str(ROOT), names=("drgn", "dmods._engine", "elftools"))
        yield _probed("drgn's own Python", [python, "-c", code])


def _interpreter(script: str) -> Optional[str]:
    """The Python in the first line of what pip installed."""
    with open(script, "rb") as file:
        line = file.readline(4096)
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    return shutil.which(words[-1]) if words else None


def _probed(what: str, command: list[str]) -> Finding:
    said = _output(command)
    line = next((each for each in said.splitlines() if each.startswith("dmods:{")), None)
    if line is None:
        return Finding(
            what, f"does not answer: {said.strip()[-200:] or 'nothing'}", "one with Python 3.9 or newer is needed"
        )
    answer = json.loads(line.partition(":")[2])
    version = answer.pop("python")
    failed = [f"{name} ({why})" for name, why in answer.items() if why is not True]
    if failed:
        return Finding(what, f"{version}, and cannot load {', '.join(failed)}", _set_up())
    return Finding(what, f"{version}, loads the engine")


def _first_line(command: list[str]) -> str:
    return _output(command).partition("\n")[0]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode("utf-8", "backslashreplace")


def _dumping() -> Iterator[Finding]:
    """Whether this machine would leave a core, and where: core(5)."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft == resource.RLIM_INFINITY:
        yield Finding("core size limit", "none")
    else:
        yield Finding("core size limit", f"{soft} bytes", "ulimit -c unlimited, in the shell that starts the program")
    try:
        pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    except OSError:
        return
    if pattern.startswith("|"):
        known = "coredumpctl dump -o core PID" if "systemd-coredump" in pattern else "that program's own way"
        yield Finding("cores go to", pattern, f"to get one: {known}; or gcore PID")
    else:
        yield Finding("cores go to", pattern)


def core(target: Target) -> Iterator[Finding]:
    """What the core lacks that commands would use."""
    threads = len(target.threads())
    yield Finding("core", f"{target.path}: {threads} threads, {target.arch.name}")
    program = next((module for module in target.modules() if module.path == target.executable), None)
    if program is not None and program.file is None:
        yield Finding("program", f"{program.path}: {program.problem or 'not here'}", "--exe FILE, or --sysroot DIR")
    elif program is not None:
        yield Finding("program", program.file or "")
    missing = _missing(target)
    for kind, size in missing.items():
        filter_ = "echo 0x3f > /proc/PID/coredump_filter before it dies (core(5)); or gcore PID"
        yield Finding("not in the core", f"{size} bytes of {kind}", filter_)
    if not missing:
        yield Finding("memory", "all that the process could write is in the core")
    target.image()  # the rest of the notes come with it
    for note in dict.fromkeys(target.notes):
        yield Finding("note", note)


def _missing(target: Target) -> dict[str, int]:
    """Bytes by kind that the process could write, and that the core leaves out."""
    from dmods.mapkinds import kinds  # needs the engine, which may be what is missing

    found: dict[str, int] = {}
    for mapping, kind in kinds(target):
        if "w" in mapping.flags and mapping.dumped < mapping.size:
            found[kind] = found.get(kind, 0) + mapping.size - mapping.dumped
    return found
