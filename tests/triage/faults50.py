"""Fifty planted faults in one C program, built in several ways: the truth about which dumps belong together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.corekit import kernel_core

COUNT = 50
#: Ways to die, with a helper that may be inlined. Five faults of each kind.
KINDS = (
    "*nowhere = n;",
    "*wild = n;",
    "abort();",
    "assert(n < 0);",
    "__builtin_trap();",
    "zero = 100 / zero;",
    "char *volatile p = malloc(40); free(p); free(p);",
    "char *volatile p = malloc(40); *(volatile long *)(p + 0x7f0000000000) = 1;",
    "volatile fn f = 0; f(n);",
    "raise(SIGBUS);",
)
#: How it is built: the compiler's options, and whether the file is stripped afterwards.
BUILDS = {
    "plain": (("-O0", "-g"), False),
    "optimized": (("-O2", "-g"), False),
    "stripped": (("-O2", "-g"), True),
    "fixed": (("-O1", "-g", "-no-pie"), False),
}
_HEAD = """#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
typedef void (*fn)(int);
static volatile int zero;
static volatile int done;
static int *volatile nowhere;
static int *volatile wild = (int *)0x123456780;
"""


def source() -> str:
    """Return the program. Half of the helpers are inlined wherever the compiler optimizes."""
    parts = [_HEAD]
    for number in range(COUNT):
        inline = "inline" if number % 2 else "__attribute__((noinline, noclone))"
        body = KINDS[number % len(KINDS)]
        parts.append(f"static {inline} void helper_{number}(int n) {{ done = {number}; {body} done = n; }}")
        kept = "__attribute__((noinline, noclone))"
        parts.append(f"{kept} void fault_{number}(int n) {{ helper_{number}(n + 1); done = {number}; }}")
    table = ", ".join(f"fault_{number}" for number in range(COUNT))
    parts.append(f"static const fn table[] = {{ {table} }};")
    parts.append("int main(int argc, char **argv) { table[atoi(argv[1])](argc); return done; }")
    return "\n".join(parts)


def build(folder: Path) -> dict[str, Path]:
    """Compile the program in every way, and return the files."""
    (folder / "faults.c").write_text(source())
    made = {}
    for name, (options, strip) in BUILDS.items():
        place = folder / name
        place.mkdir()
        made[name] = place / "faults"
        subprocess.run(["gcc", *options, "-w", "-o", str(made[name]), str(folder / "faults.c")], check=True)
        if strip:
            subprocess.run(["strip", str(made[name])], check=True)
    return made


def take(program: Path, number: int, core: Path) -> None:
    """Run a fault, and keep the core at the path."""
    core.parent.mkdir(parents=True, exist_ok=True)
    work = core.parent / f"work-{core.name}"
    work.mkdir()
    kernel_core(program, work, str(number)).rename(core)
    shutil.rmtree(work)
