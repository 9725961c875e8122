"""``dmods run [--audit WORDS] -- PROG [ARGS]``: start a program under the auditor."""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import sys
from collections.abc import Sequence

from dmods.elf import MAGIC, PT_INTERP, parse
from dmods.errors import DmodsError, UsageError, UserError

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libdmods_audit.so")
SUMMARY = "start a program under the auditor: its core then knows who allocated what"
USAGE = "usage: dmods run [--audit WORDS] -- PROG [ARGS]   (`dmods run --help` explains the words)"
_WORDS = """\
WORDS, with commas between:
  audit[=FRAMES]    every live block: when, by which thread, from where (15 frames)
  sample[=BYTES]    one block in so many bytes (512k), for production
  log[=RECORDS]     what was allocated and freed, the last so many times (65536)
  contents[=BYTES]  the first so many bytes (256) of each freed block, with the log
  guards            misuse ends the program: writes beyond a block's end, double and invalid frees
numbers may end in k, m or g. What the program starts in turn is audited as well."""
_WORD = re.compile(r"guards|(audit|sample|log|contents)(=[0-9]+[kKmMgG]?)?")


def run(words: Sequence[str]) -> int:
    """Replaces this process. Raises UserError where the program cannot be started, or could not be audited."""
    parser = argparse.ArgumentParser(
        prog="dmods run", description=SUMMARY, epilog=_WORDS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--audit", metavar="WORDS", default="audit", help="what to record (default: audit)")
    parser.add_argument("command", metavar="PROG ARGS", nargs=argparse.REMAINDER, help="the program and its arguments")
    # By hand, as argparse's mind about "--" changes between releases of Python.
    ours = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:ours])
    command = [*args.command, *words[ours:]] if args.command else list(words[ours + 1 :])
    if not command:
        raise UsageError("there is no program to start", USAGE)
    program = _program(command[0])
    environment = {**os.environ, "DMODS_AUDIT": _understood(args.audit), "LD_PRELOAD": _preload()}
    _warn()
    try:
        os.execve(program, command, environment)
    except OSError as error:
        raise UserError(f"{program} cannot be started: {error.strerror}", USAGE) from error


def _warn() -> None:
    try:
        with open("/proc/sys/kernel/core_pattern") as file:
            in_vain = leaves_no_core(file.read())
    except OSError:
        return
    if in_vain:
        print("dmods: should it crash, it leaves no core: `ulimit -c unlimited` first, or gcore it", file=sys.stderr)


def leaves_no_core(pattern: str) -> bool:
    """Whether a program that is started from here leaves no core when it dies, where ``pattern`` is core_pattern: one
    that begins with "|" names a program that is given cores whatever the limit (core(5))."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0] == 0 and not pattern.startswith("|")


def _understood(words: str) -> str:
    for word in words.split(","):
        if not _WORD.fullmatch(word):
            raise UserError(f"--audit does not know {word!r}", "audit, sample, log, contents, guards: dmods run --help")
    return words


def _preload() -> str:
    if not os.path.exists(LIBRARY):
        raise UserError(f"the auditor is not there: {LIBRARY}", "`dmods doctor` says how to get it")
    if re.search(r"[\s:]", LIBRARY):  # ld.so takes both for the end of a path, and knows no quotes
        raise UserError(f"LD_PRELOAD cannot name {LIBRARY}", "install dmods in a folder without blanks and colons")
    others = os.environ.get("LD_PRELOAD", "")
    return f"{LIBRARY} {others}".strip()


def _program(name: str) -> str:
    """Its path, where ld.so would preload for it."""
    found = shutil.which(name)
    if found is None:
        if os.path.isfile(name):
            folder = "" if os.path.dirname(name) else "./"  # a shell, too, looks only in PATH for a name alone
            how = f"dmods run -- {folder}{name}" if os.access(name, os.X_OK) else f"chmod +x {name}"
            raise UserError(f"{name} is a file, but not a program that can be started so", how)
        raise UserError(f"there is no program {name}", USAGE)
    with open(found, "rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        if read(0, 4) != MAGIC:
            return found  # a script: whatever runs it
        try:
            elf = parse(read, found)
        except DmodsError:
            return found  # the kernel will say
    if all(segment.type != PT_INTERP for segment in elf.segments):
        raise UserError(f"{found} is statically linked: nothing can be preloaded", "link it dynamically")
    if elf.word != 8:
        raise UserError(f"{found} is a 32-bit program; the auditor is 64-bit", "build it for 64 bits")
    return found
