"""Find what is installed on this machine, whether it works together, and what helps where it does not.

gdb and drgn are started from PATH, as a user starts them.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.errors import UserError
from dmods.machine.dumping import leaves_no_core
from dmods.machine.installed import (
    AUDITOR,
    FOR_GDB,
    ROOT,
    auditor_advice,
    drgn_install_command,
    find_drgn,
    preloadable,
    setup_advice,
)

_PATIENCE = 60  # seconds for a debugger to start

# Runs in the Python of gdb or drgn. It sets sys.path as gdbext/heapcmds.py does.
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


class Remark(NamedTuple):
    """One remark about this machine. `found` is a line. `help` says what to do; it is "" where nothing is wrong."""

    what: str
    found: str
    help: str = ""


def installation() -> Iterator[Remark]:
    """Yield findings about this Python, the engine, the auditor, gdb, drgn, and where cores go."""
    yield Remark("dmods", str(ROOT / "dmods"))
    yield Remark("python", f"{sys.version.split()[0]} ({sys.executable})")
    for name in ("dmods._engine", "elftools"):
        yield _importable(name)
    yield _auditor()
    yield from _gdb()
    yield from _drgn()
    yield from _dumping()


def _importable(name: str) -> Remark:
    shown = "engine" if name == "dmods._engine" else name
    try:
        module = __import__(name, fromlist=["__version__"])
    except ImportError as error:
        return Remark(shown, f"cannot be loaded: {error}", setup_advice())
    return Remark(shown, f"{module.__version__} ({module.__file__})")


def _auditor() -> Remark:
    """Return whether a program starts with the auditor. ld.so reports a library that it cannot preload, and goes on."""
    if not os.path.exists(AUDITOR):
        return Remark("auditor", f"not there: {AUDITOR}", f"for `dmods run`: {auditor_advice()}")
    try:
        path = preloadable(AUDITOR)
    except UserError as error:
        return Remark("auditor", error.what, error.how)
    said = _output(["true"], {**os.environ, "LD_PRELOAD": path, "DMODS_AUDIT": "audit"}).strip()
    if said:
        return Remark("auditor", f"does not load: {said}", f"for `dmods run`: {setup_advice()}")
    return Remark("auditor", f"loads into programs that `dmods run` starts ({AUDITOR})")


def _gdb() -> Iterator[Remark]:
    gdb = shutil.which("gdb")
    if gdb is None:
        yield Remark("gdb", "not installed", "apt-get install gdb; or without a debugger: dmods NAME CORE")
        return
    yield Remark("gdb", f"{_first_line([gdb, '--version'])} ({gdb})")
    code = _PROBE.format(root=str(ROOT), names=("dmods._engine", "elftools"))
    found = _probed("gdb's own Python", [gdb, "-nx", "-nh", "-batch", "-ex", f"python exec({code!r})"])
    yield found
    if not found.help:
        yield Remark("in gdb", f"dmods gdb CORE; or: gdb -x {FOR_GDB} CORE")


_BY_SHELL = regex(r"\'\'\'exec\' (.*) \"\$0\" \"\$@\"$")


def _drgn() -> Iterator[Remark]:
    drgn = find_drgn()
    if drgn is None:
        yield Remark("drgn", "not installed", f"for kernel dumps: {drgn_install_command()}")
        return
    version = _first_line([drgn, "--version"]).partition(" (using")[0]
    yield Remark("drgn", f"{version} ({drgn})")
    python = _interpreter(drgn)
    if python is None:
        return
    code = _PROBE.format(root=str(ROOT), names=("drgn", "dmods._engine", "elftools"))
    found = _probed("drgn's own Python", [python, "-c", code])
    yield found
    if not found.help:
        yield Remark("in drgn", "dmods NAME VMCORE; or: dmods drgn -c VMCORE NAME; at its prompt: %NAME")


def _interpreter(script: str) -> Optional[str]:
    """Return the Python that runs a script which pip installed: its first line names it.

    The kernel would end a path with a blank there, or a long one. Then the script is one for /bin/sh whose second line
    starts Python (pip's distlib, scripts.py).
    """
    with open(script, "rb") as file:
        line, second = file.readline(4096), file.readline(8192)
    if not line.startswith(b"#!"):
        return None
    started = _BY_SHELL.match(os.fsdecode(second))
    if started:
        return shlex.split(started[1])[0]
    words = os.fsdecode(line[2:]).split()
    return shutil.which(words[-1]) if words else None


def _probed(what: str, command: list[str]) -> Remark:
    said = _output(command)
    line = next((each for each in said.splitlines() if each.startswith("dmods:{")), None)
    if line is None:
        return Remark(
            what, f"does not answer: {said.strip()[-200:] or 'nothing'}", "dmods needs one with Python 3.9 or newer"
        )
    answer = json.loads(line.partition(":")[2])
    version = answer.pop("python")
    failed = [f"{name} ({why})" for name, why in answer.items() if why is not True]
    if failed:
        return Remark(what, f"{version}, and cannot load {', '.join(failed)}", setup_advice())
    return Remark(what, f"{version}, loads the engine")


def _first_line(command: list[str]) -> str:
    return _output(command).partition("\n")[0]


def _output(command: list[str], environment: Optional[dict[str, str]] = None) -> str:
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode("utf-8", "backslashreplace")


def _dumping() -> Iterator[Remark]:
    """Yield whether a program leaves a core on this machine, where, and with which memory: core(5)."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_CORE)
    pattern = _proc("sys/kernel/core_pattern")
    unlimited = "ulimit -c unlimited, in the shell that starts the program"
    if soft == resource.RLIM_INFINITY:
        yield Remark("core size limit", "none")
    elif leaves_no_core(pattern):
        yield Remark("core size limit", "0: programs started from here leave no core", unlimited)
    else:
        yield Remark("core size limit", f"{soft} bytes", "" if pattern.startswith("|") else unlimited)
    if pattern.startswith("|"):
        known = next((how for name, how in _TAKERS.items() if name in pattern), "the way that program documents")
        yield Remark("cores go to", pattern, f"to get one: {known}; or gcore PID")
    elif pattern:
        yield Remark("cores go to", pattern if pattern.startswith("/") else f"{pattern}, in the program's own folder")
    chosen = _proc("self/coredump_filter")
    if chosen and ~int(chosen, 16) & _FILTER:
        yield Remark(
            "coredump_filter", f"0x{int(chosen, 16):x}: cores lack memory",
            f"echo 0x{_FILTER:x} > /proc/self/coredump_filter, in the shell that starts the program",
        )  # fmt: skip
    scope = _proc("sys/kernel/yama/ptrace_scope")
    if scope not in ("", "0") and os.geteuid() != 0:
        how = "as root; or: sysctl kernel.yama.ptrace_scope=0" if scope != "3" else "not before the next boot"
        yield Remark("running processes", f"gdb -p and gcore are forbidden (kernel.yama.ptrace_scope={scope})", how)


# Programs that receive cores (core(5)), and how to get a core from them.
_TAKERS = {
    "systemd-coredump": "coredumpctl list, then coredumpctl dump -o core.PID PID",
    "apport": "apport-unpack /var/crash/FILE.crash DIR (the core is DIR/CoreDump)",
    "abrt": "abrt list, and the coredump in the folder it names",
}
_FILTER = 0x33  # the kernel's own default: private and shared anonymous memory, ELF headers, private huge pages


def _proc(name: str) -> str:
    try:
        return Path("/proc", name).read_text().strip()
    except OSError:
        return ""
