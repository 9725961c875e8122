"""``scripts/fuzz --truncate N --kernel``: run commands on kernel dumps, ELF and kdump, that are cut at random places.

drgn opens each in a process of its own and runs every command for kernels on it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dmods.command import KERNEL, command_names, find_command
from dmods.errors import UserError
from fixtures import documented, kernel
from fixtures.kernel import Guest
from fixtures.limits import HANG_CPU

#: The guest that has content for each command.
GUEST = ("6.1", "null")
FORMATS = ("vmcore", "kdump")
SECONDS = int(2 * HANG_CPU)  # for drgn's own part (reading vmlinux) and all commands
MEMORY = 6 << 30  # bytes of address space: drgn maps vmlinux and the modules
REFUSED = "drgn does not open it"
_OPENED = "drgn has opened it"

LINES: dict[str, tuple[tuple[str, ...], ...]] = {
    "walk": (("allpages",), ("task",), ("slab", "task_struct")),
    "findstack": ((), ("1",)),
    "files": (("1",),),
    "whatis": (("init_task",),),
    **dict.fromkeys(("allocdby", "freedby"), (("1",),)),
    **dict.fromkeys(("bufctl", "bufctl_audit"), (("init_task",),)),
}


class Ended(NamedTuple):
    """The end of one dump's process: each command line with its defect, and the wall seconds of all."""

    kept: int
    said: list[str]
    wrong: list[str]
    seconds: float


def truncated(form: str, count: int, seed: str, work: Path) -> Iterator[Ended]:
    """Yield the results of ``count`` cuts of a dump in that format.

    The longest comes first, so that one copy serves all.
    """
    guest = kernel.guest(*GUEST)
    dice = random.Random(f"{seed}-{form}")
    whole: Path = getattr(guest, form)
    size = whole.stat().st_size
    copy = work / form
    shutil.copyfile(whole, copy)
    # Half of the cuts are near the beginning, where the headers are.
    places = sorted((int(size * dice.random() ** dice.choice((1, 6))) for _ in range(count)), reverse=True)
    for kept in places:
        os.truncate(copy, kept)
        began = time.monotonic()
        said, wrong = judge(copy)
        yield Ended(kept, said, wrong, time.monotonic() - began)
    copy.unlink()


def judge(dump: Path) -> tuple[list[str], list[str]]:
    """Return what each command line said of the dump, and the defects of dmods."""
    argv = [sys.executable, "-m", "tests.fuzz.vmcores", str(dump)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent.parent)
    if done.returncode and _OPENED not in done.stderr:
        return [REFUSED], []  # libkdumpfile maps the file, and may die of SIGBUS past its end
    if done.returncode:
        return [], [f"the process ended with {done.returncode}: {done.stderr[-2000:]}"]
    said, wrong = json.loads(done.stdout)
    return said, wrong


def main(dump: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    said: list[str] = []
    wrong: list[str] = []
    _all(kernel.guest(*GUEST), Path(dump), said, wrong)
    print(json.dumps([said, wrong]))


def _all(guest: Guest, dump: Path, said: list[str], wrong: list[str]) -> None:
    prog = _opened(guest, dump)
    if prog is None:
        said.append(REFUSED)
        return
    for name in command_names():
        if KERNEL not in find_command(name, KERNEL).requires:
            continue
        for words in LINES.get(name, ((),)):
            line = " ".join((name, *words))
            try:
                said.append(f"{line}: {_run(prog, name, words)}")
            except UserError as error:
                good = error.what and error.how and "\n" not in error.what + error.how
                said.append(f"{line}: {error.what}; {error.how}")
                wrong.extend([] if good else [f"{line}: not two lines: {error!r}"])
            except Exception:  # noqa: BLE001 (whatever a command lets through is a finding)
                wrong.append(f"{line}:\n{traceback.format_exc()}")


def _opened(guest: Guest, dump: Path) -> Any:
    """Return drgn's program, opened as drgn's own command line does. Return None where drgn itself refuses."""
    import drgn

    logging.getLogger("drgn").setLevel(logging.CRITICAL)
    prog = drgn.Program()
    try:
        prog.set_core_dump(str(dump))
    except Exception:  # noqa: BLE001 (drgn's: of any kind)
        return None
    print(_OPENED, file=sys.stderr, flush=True)
    with suppress(drgn.MissingDebugInfoError):  # for modules that the dump no longer names
        prog.load_debug_info([str(guest.vmlinux), *map(str, guest.modules)])
    return prog


def _run(prog: Any, name: str, words: tuple[str, ...]) -> str:
    from dmods.output.render import render
    from drgnext import launch, session

    found = launch.command_for(name, prog)
    args = launch.parser(found, prog).parse_args(list(words))
    subject = session.subject(prog, found, args, {})
    out, err = io.StringIO(), io.StringIO()
    with session.faults(subject, name):
        render(found.run(subject, args), name, subject, False, io.StringIO(), err)
        args.json = True
        render(found.run(subject, args), name, subject, True, out, io.StringIO())
    said = documented.problems(json.loads(out.getvalue()))
    assert said == [], said
    notes = err.getvalue().strip().splitlines()
    return f"answered, {len(notes)} notes"


if __name__ == "__main__":
    main(sys.argv[1])
