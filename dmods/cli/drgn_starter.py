"""``dmods drgn ...``: drgn, with every dmods command by its name, in any folder and without links."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO, Optional

from dmods.base.raw_names import printable, shell_line
from dmods.cli.frontend import MAX_SIZE, become, limit_size, say
from dmods.command import Argument, command_names
from dmods.corefile import flattened, kdumps
from dmods.corefile.flattened import plain_reader_of, reader_of
from dmods.corefile.kernel_dumps import find_vmcoreinfo, lacks_vmcoreinfo
from dmods.corefile.packed import KDUMP, form_of_bytes, head_of, is_dump
from dmods.corefile.unpacked import plain_path
from dmods.errors import CorruptError, TruncatedError, UsageError, UserError
from dmods.machine.installed import FOR_DRGN, drgn_install_command, find_drgn
from dmods.modules import elf
from dmods.output.next_command import IN_SHELL, NAME

SUMMARY = "start drgn with the commands in it, on a kernel's dump or a core: `dmods drgn -c vmcore memstat`"
USAGE = "usage: dmods drgn [DRGN'S ARGUMENTS]   (`dmods drgn vmcore`, `dmods drgn -c vmcore NAME`)"
MDB = "mdb"  # what the launcher runs beside the commands: a line of mdb's language
# drgn's options that take a value in the next word (drgn 0.1.0: drgn/cli.py).
_VALUED = """-c --core -p --pid --qemu -s --symbols --extra-symbols --try-symbols-by --no-symbols-by --debug-directory
--debug-link-directory --kernel-directory --architecture --vmcoreinfo --log-level -e""".split()  # noqa: SIM905
_ARCHITECTURE = "--architecture"
_MACHINES = ("x86_64", "aarch64")  # by drgn's names, which are those of uname
_HEAD = 64  # bytes that say what a file is
_LEAST_KDUMP = 8192  # its header and the one behind it, a page each
_SYMBOL_FILES = "vmlinux or a module, with debug information; or System.map, or a copy of root's /proc/kallsyms"
SYMBOLS = Argument("--symbols", metavar="FILE", action="append", help=_SYMBOL_FILES)
BTF = Argument("--btf", metavar="FILE", help="types without vmlinux: a copy of /sys/kernel/btf/vmlinux")
#: What `dmods NAME DUMP` hands to drgn. The command itself takes --btf.
FOR_KERNELS = (
    Argument("-s", *SYMBOLS.names, **SYMBOLS.options),
    BTF,
    Argument("--architecture", metavar="ARCH", help="the machine, where the dump does not say it (x86_64, aarch64)"),
    MAX_SIZE,
)
_TAKEN = ("-s", "--symbols", "--architecture")


def run(words: Sequence[str]) -> int:
    """Replace this process by drgn. Raises UserError where there is no drgn."""
    if list(words) in (["-h"], ["--help"]):
        say(f"{USAGE}\n\n{SUMMARY}; `dmods drgn -q --help` has drgn's own arguments")
        return 0
    return become(_found("dmods drgn"), for_drgn(words))


def run_command(dump: str, name: str, words: Sequence[str], options: Sequence[str] = ()) -> int:
    """Replace this process by `drgn OPTIONS -c DUMP NAME WORDS`.

    Raises UserError where there is no drgn, or where drgn could not open the dump.
    """
    found = _found(f"{name} of a kernel dump", f"drgn -c {dump} {name}")
    typed = {IN_SHELL: shell_line(["dmods", NAME, dump, *options, *_types(words)])}
    dump = _plain(dump)
    check_dump(dump)
    known = [*lost_vmcoreinfo(dump), *lost_architecture(dump, options)]
    return become(found, ["-q", *options, *known, "-c", dump, str(FOR_DRGN), name, *words], typed)


def _types(words: Sequence[str]) -> list[str]:
    """Return the words that name a file with types: the next command needs it, too."""
    option = BTF.names[0]
    for number, word in enumerate(words):
        if word == option or word.startswith(f"{option}="):
            return list(words[number : number + 1 + (word == option)])
    return []


def _plain(dump: str) -> str:
    """Return the path of the dump as a plain file, and say where that is if it is another."""
    plain, _said = plain_path(dump)
    if plain != dump:
        say(f"{printable(dump)}: drgn reads its plain form, {printable(plain)}", sys.stderr)
    return plain


def lost_vmcoreinfo(dump: str) -> list[str]:
    """Return drgn's option for a dump whose notes lack VMCOREINFO: the text from the dump's memory, else nothing.

    QEMU writes the note only for a guest that has told it where (-device vmcoreinfo; libvirt's default is without).
    Raises UserError where the text is not in the memory either.
    """
    if not lacks_vmcoreinfo(dump):
        return []
    text = find_vmcoreinfo(dump)
    if text is None:
        raise UserError(
            f"{dump} is the dump of a machine, and has VMCOREINFO neither in a note nor in its memory",
            "copy or take it again, whole; for QEMU's note: -device vmcoreinfo (libvirt: <vmcoreinfo state='on'/>)",
        )
    file = os.memfd_create("vmcoreinfo", 0)  # it lives as long as drgn, which this process becomes
    os.write(file, text)
    return ["--vmcoreinfo", f"/proc/self/fd/{file}"]


def split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are FOR_KERNELS and their values, for drgn, and the other words."""
    options: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return options, [*rest, word, *left]
        if word == MAX_SIZE.names[0] and left:
            limit_size(left.pop(0))
        elif word.partition("=")[0] == MAX_SIZE.names[0]:
            limit_size(word.partition("=")[2])
        elif word in _TAKEN:
            options += [word, *left[:1]]
            del left[:1]
        elif word.partition("=")[0] in _TAKEN or (word.startswith("-s") and not word.startswith("--")):
            options.append(word)
        else:
            rest.append(word)
    return options, rest


def lost_architecture(dump: str, options: Sequence[str]) -> list[str]:
    """Return drgn's option for the machine of a compressed dump that does not name its kernel, else nothing.

    So are those of QEMU (dump-guest-memory, virsh dump --memory-only). drgn answers with a traceback to them. What the
    user gave stands.
    """
    if any(option.partition("=")[0] == _ARCHITECTURE for option in options):
        return []
    try:
        with open(dump, "rb") as file:
            read, _size = plain_reader_of(file)
            header = kdumps.read_header(read)
            machine = kdumps.machine_of(read, header) if header is not None and not header.named else None
    except OSError:
        return []  # drgn says why it cannot be read
    return [_ARCHITECTURE, machine] if machine in _MACHINES else []


def check_dump(path: str) -> None:
    """Raise UserError for a dump that drgn answers with a traceback to, or that dmods cannot read."""
    try:
        with open(path, "rb") as file:
            if file.read(len(flattened.MAGIC)) == flattened.MAGIC:
                _check_flattened(file, path)
            _check_headers(file, path)
            _check_machine(file, path)
    except (OSError, OverflowError):
        return  # drgn says why it cannot be read


def _check_flattened(file: BinaryIO, path: str) -> None:
    """Raise UserError if the flattened dump (makedumpfile -F) ends too early: its last record is missing."""
    if not flattened.index_of(file).whole:
        raise UserError(
            f"{path} is a flattened dump that is cut: its last record is missing", "copy or take it again, whole"
        )


def _check_headers(file: BinaryIO, path: str) -> None:
    """Raise UserError if the dump ends before its notes, or if its header cannot be one of a compressed dump.

    drgn answers with a traceback to the first, and names neither the file nor what to do for the second.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(12)
    try:
        if first[:8] == KDUMP[0]:
            (version,) = struct.unpack("<i", first[8:].ljust(4, b"\xff"))
            ended, wrong = end < _LEAST_KDUMP, not 0 < version <= kdumps.NEWEST_VERSION
        else:
            segments = elf.parse(reader_of(file)[0], path).segments
            ended = any(each.type == elf.PT_NOTE and each.offset + each.filesz > end for each in segments)
            wrong = False
    except TruncatedError:
        ended, wrong = True, False
    except CorruptError:
        return  # drgn says why it cannot be read
    if ended:
        raise UserError(f"{path} is a kernel dump that is cut inside its headers", "copy or take it again, whole")
    if wrong:
        raise UserError(
            f"{path} begins like a compressed kernel dump, but its header is damaged", "copy or take it again, whole"
        )


def _check_machine(file: BinaryIO, path: str) -> None:
    """Raise UserError for the dump of a 32-bit machine."""
    read, _size = plain_reader_of(file)
    machine = kdumps.small_machine(read)
    if machine is not None:
        raise UserError(
            f"{path} is the dump of a 32-bit kernel ({machine}), which dmods does not know",
            kdumps.KNOWN_MACHINES,
        )


def for_drgn(words: Sequence[str]) -> list[str]:
    """Return the words for drgn: a dump given alone becomes `-c DUMP`, and a command's name its launcher.

    A file of the user's with the name of a command stays what it is: a script for drgn.
    """
    words = _with_plain_dump(words)
    place = _first_argument(words)
    if place is not None and _is_dump(words[place]):
        words = [*words[:place], "-c", _plain(words[place]), *words[place + 1 :]]
        place = _first_argument(words)
    count = len(words)
    words = [*_found_vmcoreinfo(words[:place]), *words]
    if place is not None:
        place += len(words) - count
    if place is None or os.path.exists(words[place]):
        return list(words)
    if words[place] not in (*command_names(), MDB):
        raise UsageError(
            f"{words[place]} is neither a file nor a command of dmods", "`dmods -l` lists the commands; " + USAGE
        )
    return [*words[:place], str(FOR_DRGN), *words[place:]]


def _with_plain_dump(words: Sequence[str]) -> list[str]:
    """Return the words with a plain copy in the place of a compressed dump after -c."""
    plain = list(words)
    for place, option in enumerate(plain[:-1]):
        if option in ("-c", "--core"):
            plain[place + 1] = _plain(plain[place + 1])
    return plain


def _found_vmcoreinfo(options: Sequence[str]) -> list[str]:
    """Return drgn's options for what the dump that the options name does not say, where they do not give it."""
    dump = next((value for option, value in zip(options, options[1:]) if option in ("-c", "--core")), None)
    if dump is None:
        return []
    given = any(option.partition("=")[0] == "--vmcoreinfo" for option in options)
    return [*([] if given else lost_vmcoreinfo(dump)), *lost_architecture(dump, options)]


def _first_argument(words: Sequence[str]) -> Optional[int]:
    """Return the place of the first word that is neither an option of drgn's nor its value. -e leaves no place."""
    place = 0
    while place < len(words):
        if words[place] == "-e":
            return None
        if not words[place].startswith("-"):
            return place
        place += 2 if words[place] in _VALUED else 1
    return None


def _is_dump(path: str) -> bool:
    """Return whether the file is a dump, compressed or not."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
        form = form_of_bytes(head)
        return is_dump(head if form is None else head_of(path, form, _HEAD))
    except OSError:
        return False


def _found(what: str, then: str = "") -> str:
    drgn = find_drgn()
    if drgn is None:
        how = drgn_install_command()
        raise UserError(f"{what} needs drgn, and there is no drgn here", f"{how}; then: {then}" if then else how)
    return drgn
