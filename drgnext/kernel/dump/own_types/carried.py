"""Find a kernel's symbols and types in its dump, and give them to drgn as if they were its vmlinux.

VMCOREINFO says where the symbol table is (kernel 6.0, "kallsyms: export 'kallsyms_*' to vmcoreinfo"). The symbols say
where BTF is (CONFIG_DEBUG_INFO_BTF). Nothing is believed that is not proven: the table must have the address that
VMCOREINFO has for _stext, BTF must lie where its symbols say, and the text that begins every kernel's log must stand at
its symbol.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from dmods._engine import KernelSymbols, own_debug_file
from dmods.base.dataclass import dataclass
from drgnext.kernel.dump.own_types.declared import declarations

if TYPE_CHECKING:
    from drgn import Module, Program

_FIELD = re.compile(rb"^(SYMBOL|NUMBER)?\(?(\w+)\)?=([0-9a-fA-Fx-]+)$", re.MULTILINE)
_PAGE = 4096
_LARGEST_TABLE = 64 << 20
_LARGEST_BTF = 64 << 20
_LARGEST_IMAGE = 1 << 30
_TOKENS = 16384  # 256 pieces of text
_TOKEN_INDEX = 512
# The name of the file that drgn gets.
_NAME = "vmlinux-of-the-dump"
# Since 6.2 the kernel is compiled with -funsigned-char.
_UNSIGNED_CHAR = (6, 2)
# (drgn's program, why it has no types of its own). drgn has one program at its prompt.
_reasons: list[tuple[Any, str]] = []


class NotCarried(Exception):
    """The dump does not carry what is needed. The text says what is missing, or which proof failed."""


@dataclass(frozen=True)
class Carried:
    """A kernel's symbols and types. ``btf`` is as it lies in memory.

    ``start`` and ``end`` are the image's addresses as vmlinux has them. The kernel ran ``moved`` bytes higher.
    """

    symbols: KernelSymbols
    btf: bytes
    start: int
    end: int
    moved: int

    def file(self, release: str, build_id: bytes, aarch64: bool) -> bytes:
        """Return an ELF file that drgn takes for this kernel's vmlinux. Raises NotCarried."""
        version = tuple(map(int, re.findall(r"\d+", release)[:2]))
        try:
            return own_debug_file(
                self.symbols,
                self.btf,
                list(declarations()),
                start=self.start,
                end=self.end,
                moved=self.moved,
                build_id=build_id,
                aarch64=aarch64,
                char_signed=not aarch64 and version < _UNSIGNED_CHAR,
            )
        except ValueError as error:
            raise NotCarried(f"BTF: {error}") from None


def give(prog: Program, modules: Sequence[Module], release: str) -> None:
    """Give drgn what the kernel carries as its vmlinux, if that is among the modules and has no file yet."""
    import drgn

    for module in modules:
        if isinstance(module, drgn.MainModule) and module.wants_debug_file():
            try:
                _attach(prog, module, release)
            except NotCarried as error:
                _reasons[:] = [(prog, str(error))]


def why_not(prog: Program) -> str:
    """Return why the kernel's own symbols and types are not used, or "" if that was not tried or did not fail."""
    return next((reason for tried, reason in _reasons if tried is prog), "")


def stands_for_vmlinux(prog: Program) -> bool:
    """Return whether drgn has the kernel's own symbols and types, and no vmlinux."""
    try:
        return _NAME in (prog.main_module().debug_file_path or "")
    except LookupError:
        return False


def find(prog: Program) -> Carried:
    """Return what the dump carries. Raises NotCarried."""
    fields = _vmcoreinfo(prog)
    symbols = _symbols(prog, fields)
    stext = symbols.addresses("_stext")
    if stext != [fields.get("_stext")]:
        raise NotCarried("the kernel's symbol table and VMCOREINFO do not agree on _stext")
    start, end = (_one(symbols, name) for name in ("_text", "_end"))
    first, last = (_one(symbols, name) for name in ("__start_BTF", "__stop_BTF"))
    if not 0 < last - first <= _LARGEST_BTF:
        raise NotCarried(f"BTF has {last - first:,} bytes")
    btf = _read(prog, first, last - first)
    if len(btf) < last - first:
        raise NotCarried("BTF is not whole in the dump")
    if not _read(prog, _one(symbols, "linux_banner"), 14).startswith(b"Linux version "):
        raise NotCarried("linux_banner is no kernel's banner")
    moved = fields.get("KERNELOFFSET", 0)
    if not 0 <= moved <= start < end <= start + _LARGEST_IMAGE:
        raise NotCarried("_text, _end and KERNELOFFSET do not fit together")
    return Carried(symbols, btf, start - moved, end - moved, moved)


def _attach(prog: Program, module: Module, release: str) -> None:
    """Give drgn the file as the module's. It lives in memory as long as this process. Raises NotCarried."""
    import drgn

    platform = prog.platform
    aarch64 = platform is not None and platform.arch == drgn.Architecture.AARCH64
    data = find(prog).file(release, module.build_id or b"", aarch64)
    file = os.memfd_create(_NAME)
    with open(file, "wb", closefd=False) as stream:
        stream.write(data)
    module.try_file(f"/proc/self/fd/{file}", force=True)


def _vmcoreinfo(prog: Program) -> dict[str, int]:
    """Return the addresses and numbers of VMCOREINFO that are needed, by name."""
    try:
        text = prog["VMCOREINFO"].string_()
    except LookupError:
        raise NotCarried("the dump has no VMCOREINFO") from None
    found = {}
    for kind, name, value in _FIELD.findall(text):
        if kind == b"SYMBOL" or name == b"KERNELOFFSET":
            try:
                found[name.decode()] = int(value, 16)
            except ValueError:
                continue
    return found


def _symbols(prog: Program, fields: dict[str, int]) -> KernelSymbols:
    names = ("num_syms", "names", "token_table", "token_index", "offsets")
    places = [fields.get(f"kallsyms_{name}") for name in names]
    missing = [name for name, place in zip(names, places) if not place]
    if missing:
        raise NotCarried("VMCOREINFO does not say where the kernel's symbol table is (it does since kernel 6.0)")
    count_at, names_at, tokens_at, index_at, offsets_at = (place or 0 for place in places)
    count = int.from_bytes(_read(prog, count_at, 4), "little")
    base_at = fields.get("kallsyms_relative_base")
    base: Optional[int] = None
    if base_at is not None:
        base = int.from_bytes(_read(prog, base_at, 8), "little")
    try:
        return KernelSymbols(
            count,
            names=_read(prog, names_at, _room(names_at, tokens_at)),
            token_table=_read(prog, tokens_at, _TOKENS),
            token_index=_read(prog, index_at, _TOKEN_INDEX),
            offsets=_read(prog, offsets_at, min(4 * count, _LARGEST_TABLE)),
            offsets_at=offsets_at,
            base=base,
        )
    except (ValueError, OverflowError) as error:
        raise NotCarried(f"the kernel's symbol table: {error}") from None


def _room(start: int, after: int) -> int:
    """Return the bytes of the names. The tokens come behind them."""
    return after - start if 0 < after - start <= _LARGEST_TABLE else _LARGEST_TABLE


def _one(symbols: KernelSymbols, name: str) -> int:
    found = symbols.addresses(name)
    if len(found) != 1:
        raise NotCarried(f"the kernel has no symbol {name}" if not found else f"{name} is {len(found)} symbols")
    return found[0]


def _read(prog: Program, address: int, size: int) -> bytes:
    """Return up to ``size`` bytes of the kernel's memory. They end where the dump lacks a page."""
    import drgn

    try:
        return prog.read(address, size)
    except drgn.FaultError:
        pass
    out = bytearray()
    while len(out) < size:
        here = address + len(out)
        step = min(_PAGE - here % _PAGE, size - len(out))
        try:
            out += prog.read(here, step)
        except drgn.FaultError:
            break
    return bytes(out)
