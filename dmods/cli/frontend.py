"""Parts that the front ends share: errors, the exit status, and the check that dmods is set up.

gdb has streams and errors of its own: see gdbext/bridge.py.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Callable, Optional, TextIO

from dmods.base.dataclass import dataclass
from dmods.base.raw_names import printable
from dmods.command import Argument
from dmods.errors import OutputError, UsageError, UserError
from dmods.output.layout import paragraph, terminal_width
from dmods.output.stdout import checked_stdout, occupy_closed_streams

EXE = Argument("--exe", metavar="FILE", help="the program that dumped the core, if it is not where the core says")
MAX_SIZE = Argument("--max-size", metavar="SIZE", help="the most that a compressed dump may have unpacked (200G)")
SYSROOT = Argument(
    "--sysroot",
    metavar="DIR",
    help="where the other machine's files are, instead of /: a folder, /proc/PID/root, or a container's image (docker "
    "save, OCI)",
)
DEBUGINFOD = Argument(
    "--debuginfod",
    action="store_true",
    help="ask the servers of DEBUGINFOD_URLS for programs and debug information that are not here",
)

PROCESS = Argument(
    "-p",
    "--pid",
    dest="process",
    metavar="PID",
    type=int,
    help="a live process instead of a core: it stops for a moment",
)

#: How a word begins that names a core in somebody's keeping (dmods.corefile.stored).
NAMED = "coredump:"

# Exit statuses, beside those of a command's own (dmods.report.Report.status).
CANNOT, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_COLLECT_AFTER = 50_000  # new objects that others can refer to; Python's own number is 700
# What scripts/setup (or pip) installs.
_FROM_SETUP = ("dmods._engine", "elftools")


@dataclass
class Asked:
    """The user's request, as far as it is known when an error occurs."""

    command: Optional[str] = None
    target: Optional[str] = None
    json: bool = False


def guard(work: Callable[[], int], who: str, asked: Optional[Asked] = None) -> int:
    """Return the exit status of ``work``: its own, or 1 cannot, 2 usage, 130 interrupted.

    An error that the user can mend is shown without a traceback, and in JSON too if that was asked for. ``who`` names
    the program that this Python belongs to: it may lack what scripts/setup builds.
    """
    asked = asked or Asked()
    try:
        return work()
    except ImportError as error:
        try:
            check_set_up(who)
        except UserError as reason:
            return fail(reason, asked)
        if error.name != "dmods._engine":
            raise
        # The engine is older than what asks it: the sources were updated, and the engine was not built again.
        return fail(not_set_up(error, who), asked)
    except UserError as error:
        return fail(error, asked)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def fail(error: UserError, asked: Asked) -> int:
    """Show the error, on stdout as well where JSON was asked for. Return the exit status."""
    status = exit_status(error)
    if asked.json and not error.in_json:
        from dmods.output.json import write_error

        write_error(error, asked.command, asked.target, status, sys.stdout)
    complain(error)
    return status


def exit_status(error: UserError) -> int:
    """Return the exit status that the error means: 2 for a wrong command line, else 1."""
    return WRONG_USAGE if isinstance(error, UsageError) else CANNOT


def complain(error: UserError) -> None:
    """Show the error's two lines on stderr."""
    say(f"dmods: {printable(error.what)}\n  {printable(error.how)}", sys.stderr)


def say(text: str, stream: Optional[TextIO] = None) -> None:
    """Print lines of text. On a terminal they are broken at words."""
    stream = stream or sys.stdout
    width = terminal_width(stream)
    print(*(paragraph(line, width) for line in text.split("\n")), sep="\n", file=stream)


def collect_little() -> None:
    """Have Python look for garbage seldom, in a process that runs one command and ends."""
    # This saves 10 ms, most of it while modules are imported.
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
    # Python also looks three times as it ends. That takes 15 ms, and the kernel frees all memory anyway.
    atexit.register(gc.freeze)


def guard_program(work: Callable[[], int], who: str, asked: Optional[Asked] = None) -> int:
    """Return the exit status of a whole program. It also guards the standard output.

    A reader that closes its pipe (`| head`) has seen enough: the status is 0. A full disk gives 1.
    """
    occupy_closed_streams()
    try:
        with checked_stdout():
            return guard(work, who, asked)
    except BrokenPipeError:
        return 0
    except OutputError as error:
        print(f"dmods: {error}", file=sys.stderr)
        return CANNOT


def check_set_up(who: str) -> None:
    """Raise UserError where the Python of ``who`` cannot load what dmods needs: scripts/setup was not run."""
    try:
        for name in _FROM_SETUP:
            import_module(name)  # elftools itself is empty, so this is quick
    except ImportError as error:
        raise not_set_up(error, who) from None


def not_set_up(error: ImportError, who: str) -> UserError:
    """Return the error for a Python that cannot load what dmods needs. `who` names its owner."""
    from dmods.machine.installed import setup_advice  # pathlib and shutil take 6 ms to import

    return UserError(f"dmods is not set up for {who}: {error}", setup_advice(f"the Python of {who}"))


def check_files(args: Namespace) -> None:
    """Raise UserError where there is no sysroot, and let debuginfod be asked where the user said so.

    It stays so in the programs that this process starts.
    """
    sysroot: Optional[str] = getattr(args, "sysroot", None)
    if sysroot is not None and not os.path.isdir(sysroot) and not os.path.isfile(sysroot):
        raise UserError(
            f"{sysroot} is not a folder, and not the image of a container",
            "--sysroot takes the folder that holds the other machine's /, or what `docker save` wrote",
        )
    if getattr(args, "debuginfod", False):
        from dmods.modules.debuginfod import ASKED, URLS

        if not os.environ.get(URLS, "").strip():
            raise UserError(
                f"--debuginfod asks the servers of {URLS}, and it is not set",
                f"for example: {URLS}=https://debuginfod.elfutils.org dmods ... --debuginfod",
            )
        os.environ[ASKED] = "1"


def with_named_cores(words: Sequence[str]) -> list[str]:
    """Return the words with paths in the place of coredump:PID, coredump:NAME and coredump:, and say which they are.

    Raises UserError where there is no such core.
    """
    if not any(word.startswith(NAMED) for word in words):
        return list(words)
    from dmods.corefile.stored import named

    found = [named(word) for word in words]
    for word, path in zip(words, found):
        if word != path:
            say(f"note: {printable(word)} is {printable(path)}", sys.stderr)
    return found


def live_process(word: Optional[str]) -> Optional[int]:
    """Return the pid that a word is, or None where it is a file or no process has that number."""
    is_pid = word is not None and word.isascii() and word.isdigit() and not os.path.lexists(word)
    return int(word) if is_pid and word is not None and os.path.isdir(f"/proc/{word}") else None


def names_process(words: Sequence[str]) -> bool:
    """Return whether a command line has -p, so that no core is named. No command has an option of that name."""
    return any(re.fullmatch(r"-p\d*|--pid(=.*)?", word) for word in words)


def limit_size(size: Optional[str]) -> None:
    """Set the most that a compressed dump may have when it is unpacked. Raises UserError for a text that is no size."""
    if size is not None:
        from dmods.corefile.unpacked import MOST_SIZE, size_of

        size_of(size)
        os.environ[MOST_SIZE] = size


def safe_output() -> None:
    """Escape characters that the terminal's encoding lacks: such a name must not end the listing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def become(program: str, words: Sequence[str], variables: Optional[Mapping[str, str]] = None) -> int:
    """Replace this process by a program: the terminal, Ctrl-C and the exit status are then that program's.

    ``variables`` are added to its environment. Raises UserError where it cannot be started.
    """
    sys.stdout.flush()
    try:
        os.execve(program, [program, *words], {**os.environ, **(variables or {})})
    except OSError as error:
        raise UserError(f"{program} cannot be started: {error.strerror}", "`dmods doctor` tries it") from error
