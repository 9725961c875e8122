"""``dmods run [--audit WORDS] -- PROG [ARGS]``: start a program under the auditor."""

from __future__ import annotations

import argparse
import errno
import grp
import os
import pwd
import shutil
import stat
import struct
import sys
from collections.abc import Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.cli.frontend import say
from dmods.command import HelpFormatter
from dmods.errors import DmodsError, UsageError, UserError
from dmods.machine.dumping import leaves_no_core
from dmods.machine.installed import AUDITOR, ROOT, auditor_advice, preloadable
from dmods.modules.elf import MAGIC, PT_INTERP, parse

SUMMARY = "start a program under the auditor: its core then knows who allocated what"
USAGE = "usage: dmods run [--audit WORDS] -- PROG [ARGS]   (`dmods run --help` explains the words)"
_WORDS = """\
WORDS, with commas between:
  audit[=FRAMES]    record every live block: its time, its thread and its stack of up to 64 frames
  sample[=BYTES]    record one block in so many allocated bytes (512k): for production
  log[=RECORDS]     keep the last allocations and frees (65536)
  contents[=BYTES]  keep the first bytes (256) of each freed block, with the log
  maps              record mmap, mremap, brk and shmat with their stacks: who maps the memory
  guards            end the program at a write beyond the end of a block, a double free or an invalid free
Numbers may end in k, m or g. Programs that the program starts are audited too.

--profile-at-exit FILE takes the forms of `dmods profile -o`. The program itself writes FILE, also after exec.
If the name has %p (the pid), each process writes a file. %n is the number of the profile in its process.
A program that has a handler for SIGUSR2 of its own keeps it. A program that a signal kills writes no file."""
_MOST_INTERPRETERS = 5  # a script may name a script as its interpreter (fs/exec.c, exec_binprm)
_MOST_LINE = 256  # bytes of a script's #! line that the kernel reads (BINPRM_BUF_SIZE)
# The largest values that the auditor takes (audit/options.c).
_MOST = {"audit": 64, "sample": 1 << 40, "log": 1 << 26, "contents": 1 << 20}
_WORD = regex(r"guards|maps|(audit|sample|log|contents)(=[0-9]+[kKmMgG]?)?")


def run(words: Sequence[str]) -> int:
    """Replace this process by the program. Raises UserError where it cannot be started, or could not be audited."""
    parser = argparse.ArgumentParser(
        prog="dmods run", description=SUMMARY, epilog=_WORDS, formatter_class=HelpFormatter
    )
    parser.add_argument("--audit", metavar="WORDS", default="audit", help="what to record (default: audit)")
    parser.add_argument("command", metavar="PROG ARGS", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.add_argument(
        "--profile-at-exit",
        metavar="FILE",
        help="write a heap profile when the program ends, and on SIGUSR2; the end of the name says the form",
    )
    # argparse treats "--" differently in different releases of Python, so it is found here.
    ours = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:ours])
    command = [*args.command, *words[ours:]] if args.command else list(words[ours + 1 :])
    if not command:
        raise UsageError("there is no program to start", USAGE)
    program = _program(command[0])
    environment = {**os.environ, "DMODS_AUDIT": _understood(args.audit), "LD_PRELOAD": _preload()}
    environment.update(_profile(args.profile_at_exit))
    _warn()
    try:
        os.execve(program, command, environment)
    except OSError as error:
        how = f"name the program that runs it: dmods run -- sh {program}" if error.errno == errno.ENOEXEC else USAGE
        raise UserError(f"{program} cannot be started: {error.strerror}", how) from error


def _profile(file: Optional[str]) -> dict[str, str]:
    """Return the variables that tell the auditor where to leave a profile (audit/dump/leave.c). Raises UsageError."""
    if file is None:
        return {}
    from dmods.profile.forms import form_end  # nobody else needs the forms

    form_end(file)
    path = os.path.abspath(file)
    folder = os.path.dirname(path)
    if not os.access(folder, os.W_OK):
        raise UserError(f"no file can be written in {folder}", "--profile-at-exit takes a file in a folder of yours")
    return {
        "DMODS_PROFILE": path,
        "DMODS_PROFILE_PID": str(os.getpid()),
        "DMODS_PROFILE_PYTHON": sys.executable,
        "DMODS_PROFILE_PACKAGES": str(ROOT),
    }


def _warn() -> None:
    try:
        with open("/proc/sys/kernel/core_pattern") as file:
            no_core = leaves_no_core(file.read())
    except OSError:
        return
    if no_core:
        say("dmods: a crash will leave no core: run `ulimit -c unlimited` first, or use gcore", sys.stderr)


def _understood(words: str) -> str:
    for word in words.split(","):
        if not _WORD.fullmatch(word):
            raise UserError(
                f"--audit does not know {word!r}", "audit, sample, log, contents, guards, maps: dmods run --help"
            )
        name, _, value = word.partition("=")
        if value and not 0 < (number := _number(value)) <= _MOST[name]:
            raise UserError(
                f"--audit {word}: {number} is out of range", f"{name} takes a number from 1 to {_MOST[name]}"
            )
    return words


def _number(text: str) -> int:
    """Return the number, which may end in k, m or g."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    return int(text) if text.isdigit() else int(text[:-1]) * units[text[-1].lower()]


def _preload() -> str:
    if not os.path.exists(AUDITOR):
        raise UserError(f"the auditor is missing: {AUDITOR}", auditor_advice())
    others = os.environ.get("LD_PRELOAD", "")
    return f"{preloadable(AUDITOR)} {others}".strip()


def _program(name: str) -> str:
    """Return the path of the program. Raises UserError where it cannot be started or audited."""
    found = shutil.which(name)
    if found is None:
        raise _cannot_start(name)
    program = found
    for _ in range(_MOST_INTERPRETERS):
        interpreter = _check_content(program)
        if interpreter is None:
            _refuse_elevated(program)  # of a script the kernel uses the interpreter's bits (fs/exec.c)
            break
        program = interpreter
    return found


def _cannot_start(name: str) -> UserError:
    """Return what to tell the user of a name that shutil.which does not find."""
    if not os.path.isfile(name):
        return UserError(f"there is no program {name}", USAGE)
    if _beginning(name, 2) != b"#!" and _beginning(name, 4) != MAGIC:
        return UserError(f"{name} is not a program: it has neither an ELF header nor a #! line", USAGE)
    folder = "" if os.path.dirname(name) else "./"  # a shell, too, searches only PATH for a name without a folder
    how = f"dmods run -- {folder}{name}" if os.access(name, os.X_OK) else f"chmod +x {name}"
    return UserError(f"{name} is a file, but it cannot be started by this name", how)


def _beginning(path: str, size: int) -> bytes:
    """Return the first bytes of a file, or b"" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _check_content(program: str) -> Optional[str]:
    """Return the interpreter of a script, or None for a program that can be audited. Raises UserError for others."""
    beginning = _beginning(program, _MOST_LINE)
    if beginning.startswith(b"#!"):
        words = beginning[2:].partition(b"\n")[0].split()
        return os.fsdecode(words[0]) if words and os.path.isfile(words[0]) else None
    if not beginning.startswith(MAGIC):
        return None  # it cannot be read, or binfmt_misc knows what runs it
    with open(program, "rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        try:
            elf = parse(read, program)
        except DmodsError:
            return None  # execve says what is wrong
    if all(segment.type != PT_INTERP for segment in elf.segments):
        raise UserError(f"{program} is statically linked: ld.so cannot preload the auditor", "link it dynamically")
    if elf.word != 8:
        raise UserError(f"{program} is a 32-bit program, and the auditor is a 64-bit library", "build it for 64 bits")
    return None


# -- programs that get privileges -------------------------------------------------------------------------------------


def _refuse_elevated(program: str) -> None:
    """Raise UserError where the program would get privileges: ld.so then ignores LD_PRELOAD (secure execution)."""
    try:
        status, flags = os.stat(program), os.statvfs(program).f_flag
    except OSError:
        return
    if flags & os.ST_NOSUID:
        return
    try:
        capabilities = os.getxattr(program, "security.capability")
    except OSError:
        capabilities = b""
    found = elevation(status, os.getuid(), os.getgid(), _no_new_privileges(), capabilities)
    if found is not None:
        what, who = found
        how = f"start it as {who}, or audit a copy of it: `cp` drops the privilege"
        raise UserError(f"{program} {what}: ld.so would not load the auditor, so nothing would be recorded", how)


def elevation(
    status: os.stat_result, uid: int, gid: int, no_new_privileges: bool, capabilities: bytes
) -> Optional[tuple[str, str]]:
    """Return what makes execve set AT_SECURE, and as whom the program would not get it.

    The rules are the kernel's (security/commoncap.c, cap_bprm_creds_from_file). ``uid`` and ``gid`` are the real ones.
    ``capabilities`` is the file's security.capability. None: nothing sets it.
    """
    mode = status.st_mode
    if mode & stat.S_ISUID and status.st_uid != uid and not no_new_privileges:
        owner = _user(status.st_uid)
        return f"is set-uid {owner}", owner
    # Without the group's execute bit this bit means mandatory locking (fs/exec.c, bprm_fill_uid).
    if mode & stat.S_ISGID and mode & stat.S_IXGRP and status.st_gid != gid and not no_new_privileges:
        group = _group(status.st_gid)
        return f"is set-gid {group}", f"a user whose group is {group}"
    if uid != 0 and _gives_capabilities(capabilities):
        return "has file capabilities", "root"
    return None


def _gives_capabilities(data: bytes) -> bool:
    """Return whether a file with this security.capability is executed with more privileges (struct vfs_cap_data)."""
    if len(data) < 12:
        return False
    words = struct.unpack_from(f"<{len(data) // 4}I", data)
    pairs = 1 if words[0] >> 24 == 1 else 2
    return bool(words[0] & 1 or any(words[1 : 1 + 2 * pairs : 2]))


def _no_new_privileges() -> bool:
    try:
        with open("/proc/self/status") as file:
            return any(line.split() == ["NoNewPrivs:", "1"] for line in file)
    except OSError:
        return False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"group {gid}"
