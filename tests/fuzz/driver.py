"""Damage cores and have workers run every command on them, for the wanted time."""

from __future__ import annotations

import io
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Callable, Optional

from fixtures import _cache, audited, jemallocs
from tests.corekit import compile_c, gdb_core, kernel_core
from tests.fuzz.fields import Fields
from tests.fuzz.recipes import Recipe, patches

HERE = Path(__file__).parent
TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Dump:
    """The way a core of victim.c is made: by the kernel or by gdb, with compiler options and an environment.

    The environment leads to the libraries ``preloaded``.
    """

    flags: tuple[str, ...] = ()
    gcore: bool = False
    environment: Callable[[], dict[str, str]] = _nothing
    preloaded: Callable[[], Sequence[Path]] = tuple


def _over_tcmalloc(options: str) -> dict[str, str]:
    """Return the variables that run a program under the auditor, with tcmalloc as its allocator."""
    variables = audited.environment(options)
    return {**variables, "LD_PRELOAD": f"{variables['LD_PRELOAD']} {TCMALLOC}"}


DUMPS = {
    "kernel": Dump(),
    "gcore": Dump(gcore=True),
    "audited": Dump(
        environment=lambda: audited.environment("audit,log=500,contents=16"), preloaded=lambda: [audited.LIBRARY]
    ),
    "jemalloc": Dump(
        environment=lambda: {"LD_PRELOAD": jemallocs.library()}, preloaded=lambda: [Path(jemallocs.library())]
    ),
    # tcmalloc maps its memory through libc's functions, so the auditor records that, too. Its blocks have only records.
    "recorded": Dump(environment=lambda: _over_tcmalloc("audit,maps"), preloaded=lambda: [audited.LIBRARY, TCMALLOC]),
    "small": Dump(("-DSMALL",)),
    "static": Dump(("-DSMALL", "-static")),
}
REGRESSIONS = HERE.parent / "fuzz_regressions"
TIMEOUT = 300.0  # wall seconds for one damaged core, on a machine that has other work


@dataclass(frozen=True)
class Verdict:
    """The result for one damaged core: the number of commands that ran, and the defects of dmods."""

    runs: int
    findings: list[Finding]


@dataclass(frozen=True)
class Finding:
    """A defect of dmods: the command, the recipe, and the traceback or another failure."""

    recipe: Recipe
    command: str
    trace: str

    @property
    def place(self) -> str:
        """Return what distinguishes two defects: the last line of dmods' own code in the traceback, and the error."""
        rows = [row.strip() for row in self.trace.splitlines() if row.strip()]
        ours = [row for row in rows if row.startswith('File "') and ("/dmods/" in row or "/engine/" in row)]
        return " ".join([*ours[-1:], *rows[-1:]])[:300] if ours else " ".join(rows[-1:])[:300]


class Victim:
    """The core of victim.c, its places, and copies of both files that are damaged and mended in place."""

    def __init__(self, dump: str, work: Path) -> None:
        plan = DUMPS[dump]
        key = _cache.key(HERE / "victim.c", dump, *plan.flags, *plan.preloaded())
        made = _cache.make(
            _cache.CACHE / "fuzz" / f"{dump}-{key}",
            f"a core to damage ({dump})",
            lambda where: _make(plan, where),
            in_place=True,
        )
        self.dump = dump
        self._core = next(path for path in made.iterdir() if path.name.startswith("core"))
        self._exe = (made / "victim").read_bytes()
        self.fields = Fields(self._core, made / "victim")
        self.core, self.exe = work / f"{dump}.core", work / f"{dump}.victim"
        shutil.copyfile(self._core, self.core)

    def damage(self, recipe: Recipe) -> Optional[Path]:
        """Apply the recipe. Return the program's path when that is damaged as well."""
        core, program, keep = patches(self.fields, recipe, self._exe)
        with open(self.core, "r+b") as stream:
            for offset, data in core:
                stream.seek(offset)
                stream.write(data)
            if keep is not None:
                stream.truncate(keep)
        if not program:
            return None
        exe = bytearray(self._exe)
        for offset, data in program:
            exe[offset : offset + len(data)] = data
        self.exe.write_bytes(exe)
        return self.exe

    def mend(self, recipe: Recipe) -> None:
        if recipe.keep is not None:
            shutil.copyfile(self._core, self.core)
            return
        core, _program, _keep = patches(self.fields, recipe, self._exe)
        with open(self._core, "rb") as whole, open(self.core, "r+b") as stream:
            for offset, data in core:
                whole.seek(offset)
                stream.seek(offset)
                stream.write(whole.read(len(data)))


def _make(dump: Dump, where: Path) -> None:
    program = compile_c(HERE / "victim.c", where / "victim", "-pthread", "-Wl,--build-id", *dump.flags)
    if dump.gcore:
        gdb_core(program, where)
    else:
        kernel_core(program, where, env=dump.environment())


class Worker:
    """The process that runs the commands. A new process replaces one that dies or hangs."""

    def __init__(self) -> None:
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._errors: IO[bytes] = io.BytesIO()

    def judge(self, recipe: Recipe, core: Path, exe: Optional[Path]) -> Verdict:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(core), None if exe is None else str(exe)]).encode() + b"\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answered = bool(selector.select(TIMEOUT))
        answer = process.stdout.readline() if answered else b""
        if answer:
            runs, wrong = json.loads(answer)
            return Verdict(runs, [Finding(recipe, str(row["command"]), row["trace"]) for row in wrong])
        if not answered:
            process.send_signal(6)  # faulthandler prints where the process is
        code = process.wait(TIMEOUT)
        self._process = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")[-6000:]
        what = f"the process ended with {code}" if answered else f"no answer in {TIMEOUT:.0f} s"
        return Verdict(0, [Finding(recipe, "?", f"{said}\n{what}")])

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (the file lives as long as the process)
        environment = {**os.environ, "DMODS_THREADS": "2", "PYTHONHASHSEED": "0"}
        argv = [sys.executable, "-m", "tests.fuzz.worker"]
        self._process = subprocess.Popen(
            argv,
            cwd=HERE.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        return self._process

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def replay(recipes: Sequence[Recipe], work: Path) -> Iterator[tuple[Recipe, list[Finding]]]:
    """Yield each recipe with the defects of dmods that it finds."""
    victims: dict[str, Victim] = {}
    with Worker() as worker:
        for recipe in recipes:
            victim = victims.get(recipe.dump)
            if victim is None:
                victim = victims[recipe.dump] = Victim(recipe.dump, work)
            exe = victim.damage(recipe)
            yield recipe, worker.judge(recipe, victim.core, exe).findings
            victim.mend(recipe)
