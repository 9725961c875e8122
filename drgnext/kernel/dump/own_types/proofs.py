"""The symbols and types that VMCOREINFO tells of, and the proofs that others agree with it.

VMCOREINFO has the addresses of variables, sizes of structures, offsets of members and values of enumerations
(kernel/crash_core.c, "admin-guide/kdump/vmcoreinfo.rst"). Symbols or types of another build do not agree with all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from dmods._engine import KernelSymbols, btf_answers, misplaced_variable
from dmods.base.dataclass import dataclass
from dmods.base.regex import regex

if TYPE_CHECKING:
    from drgn import Program

_LINE = regex(rb"^([A-Z-]+)(\([\w.]+\))?=([\w.+-]+)$", re.MULTILINE)
_ASKED = ("SIZE", "OFFSET", "LENGTH", "NUMBER")
# A kernel says more than twice as many.
_LEAST_ANSWERS = 20
_PAGE = 4096


class NotCarried(Exception):
    """Symbols or types are not there, or not those of this kernel. The text names what is missing or the proof."""


@dataclass(frozen=True)
class Told:
    """The words of VMCOREINFO: ``symbols`` by name, and ``answers`` to questions as ``SIZE(page)``.

    ``build_id`` is in hexadecimal digits; "" where the kernel does not say it (before 5.9).
    """

    symbols: dict[str, int]
    answers: dict[str, int]
    moved: int
    release: str
    build_id: str


def told(prog: Program) -> Told:
    """Return what the dump's VMCOREINFO says. Raises NotCarried."""
    try:
        text = prog["VMCOREINFO"].string_()
    except LookupError:
        raise NotCarried("the dump has no VMCOREINFO") from None
    symbols: dict[str, int] = {}
    answers: dict[str, int] = {}
    words: dict[str, str] = {}
    for kind, name, value in ((a.decode(), b.decode(), c.decode()) for a, b, c in _LINE.findall(text)):
        if not name:
            words[kind] = value
            continue
        try:
            if kind == "SYMBOL":
                symbols[name[1:-1]] = int(value, 16)
            elif kind in _ASKED:
                answers[kind + name] = int(value, 0)
        except ValueError:
            continue
    try:
        moved = int(words.get("KERNELOFFSET", "0"), 16)
    except ValueError:
        raise NotCarried("KERNELOFFSET in VMCOREINFO is no number") from None
    return Told(symbols, answers, moved, words.get("OSRELEASE", ""), words.get("BUILD-ID", ""))


def one_address(symbols: KernelSymbols, name: str) -> int:
    """Return the address of the only symbol of that name. Raises NotCarried."""
    found = symbols.addresses(name)
    if len(found) != 1:
        raise NotCarried(f"the kernel has no symbol {name}" if not found else f"{name} is {len(found)} symbols")
    return found[0]


def prove_symbols(prog: Program, symbols: KernelSymbols, said: Told) -> tuple[int, int]:
    """Return where the kernel's image begins and ends. Raises NotCarried if VMCOREINFO or the memory do not agree."""
    stext = symbols.addresses("_stext")
    if stext != [said.symbols.get("_stext")]:
        raise NotCarried("the kernel's symbol table and VMCOREINFO do not agree on _stext")
    start, end = (_image(symbols, name) for name in ("_text", "_end"))
    for name, address in said.symbols.items():
        found = symbols.addresses(name)
        # The value of mem_section is a pointer to other memory.
        if found and address not in found and start <= address < end:
            raise NotCarried(f"{name} is at {found[0]:#x}, and VMCOREINFO has {address:#x}: it is of another build")
    banner = b"Linux version " + (f"{said.release} ".encode() if said.release else b"")
    if read_memory(prog, _image(symbols, "linux_banner"), len(banner)) != banner:
        raise NotCarried(f"{banner.decode().strip()!r} is not at linux_banner")
    return start, end


def _image(symbols: KernelSymbols, name: str) -> int:
    if not symbols.addresses(name):
        raise NotCarried(
            f"the symbol table has no {name}: it lacks the variables (CONFIG_KALLSYMS_ALL is off, as on arm64); "
            "--symbols System.map helps"
        )
    return one_address(symbols, name)


def prove_types(btf: bytes, said: Told, symbols: KernelSymbols) -> None:
    """Raise NotCarried if the types do not agree with VMCOREINFO or with the symbols."""
    try:
        answers = btf_answers(btf, list(said.answers))
        misplaced = misplaced_variable(symbols, btf)
    except ValueError as error:
        raise NotCarried(f"BTF: {error}") from None
    known = [(asked, mine, said.answers[asked]) for asked, mine in zip(said.answers, answers) if mine is not None]
    for asked, mine, theirs in known:
        if mine != theirs:
            raise NotCarried(f"BTF: {asked} is {mine}, and VMCOREINFO has {theirs}: it is of another build")
    if len(known) < _LEAST_ANSWERS:
        raise NotCarried(f"BTF: it has {len(known)} of {len(said.answers)} things that VMCOREINFO names")
    if misplaced is not None:
        name, mine, theirs = misplaced
        raise NotCarried(f"BTF: {name} is at {mine:#x}, and its symbol at {theirs:#x}: they are of different builds")


def same_build(build_id: Optional[str], said: Told) -> None:
    """Raise NotCarried if the build-id is another than the kernel's."""
    if build_id and said.build_id and build_id != said.build_id:
        raise NotCarried(f"its build-id is {build_id}, and the dump's kernel has {said.build_id}")


def read_memory(prog: Program, address: int, size: int) -> bytes:
    """Return up to ``size`` bytes of the kernel's memory. They end where the dump lacks a page."""
    import drgn

    try:
        return prog.read(address, size)
    except drgn.FaultError:
        pass
    except (ValueError, OverflowError):  # no address
        return b""
    out = bytearray()
    while len(out) < size:
        here = address + len(out)
        step = min(_PAGE - here % _PAGE, size - len(out))
        try:
            out += prog.read(here, step)
        except (drgn.FaultError, ValueError, OverflowError):
            break
    return bytes(out)
