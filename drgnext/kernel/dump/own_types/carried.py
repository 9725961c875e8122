"""Find a kernel's symbols and types without vmlinux, and give them to drgn as if they were its vmlinux.

They are in the dump: the symbol table is found (kallsyms.py), and the symbols say where BTF is (CONFIG_DEBUG_INFO_BTF).
Or the user has files with them. Nothing is believed that is not proven (proofs.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from dmods._engine import KernelSymbols, joined_types, own_debug_file, own_module_file
from dmods.base.dataclass import dataclass, field, replace
from drgnext.kernel.dump.own_types.declared import declarations
from drgnext.kernel.dump.own_types.files import Files, btf_of, listing
from drgnext.kernel.dump.own_types.kallsyms import own_symbols
from drgnext.kernel.dump.own_types.modules import Loaded, loaded_modules
from drgnext.kernel.dump.own_types.proofs import (
    NotCarried,
    Told,
    one_address,
    prove_symbols,
    prove_types,
    read_memory,
    same_build,
    told,
)

if TYPE_CHECKING:
    from drgn import Module, Program

_LARGEST_BTF = 64 << 20
_LARGEST_IMAGE = 1 << 30
# The name of the file that drgn gets.
_NAME = "vmlinux-of-the-dump"
_OF_MODULE = "module-of-the-dump"
_TYPES = "types-of-the-dump"
# Since 6.2 the kernel is compiled with -funsigned-char.
_UNSIGNED_CHAR = (6, 2)
_64_BITS = 1 << 64


@dataclass
class Outcome:
    """The outcome of the search. ``reason`` says why nothing was found, "" if something was.

    ``symbols`` and ``types`` are the user's files that are used, None for the dump's own. ``refused`` has the reason
    for each file that is not used. ``modules`` are those of the kernel's list.
    """

    reason: str = ""
    symbols: Optional[str] = None
    types: Optional[str] = None
    refused: dict[str, str] = field(default_factory=dict)
    modules: Sequence[Loaded] = ()

    @property
    def untyped(self) -> list[str]:
        """Return the names of the modules without types."""
        return sorted(module.name for module in self.modules if module.btf is None)


# (drgn's program, its outcome). drgn has one program at its prompt.
_outcomes: list[tuple[Any, Outcome]] = []


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
    modules: Sequence[Loaded]

    def file(self, release: str, build_id: bytes, aarch64: bool) -> bytes:
        """Return an ELF file that drgn takes for this kernel's vmlinux. Raises NotCarried."""
        version = tuple(map(int, re.findall(r"\d+", release)[:2]))
        try:
            return own_debug_file(
                self.symbols,
                [module.symbols for module in self.modules if module.symbols is not None],
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


def give(prog: Program, modules: Sequence[Module], release: str, files: Files) -> None:
    """Give drgn what the kernel carries, for those of the modules that have no file yet: vmlinux, then others."""
    import drgn

    for module in modules:
        if not module.wants_debug_file():
            continue
        if isinstance(module, drgn.MainModule):
            found = Outcome()
            _outcomes[:] = [(prog, found)]
            try:
                _attach(prog, module, release, files, found)
            except NotCarried as error:
                found.reason = str(error)
        elif isinstance(module, drgn.RelocatableModule) and stands_for_vmlinux(prog):
            _attach_module(prog, module)


def outcome(prog: Program) -> Outcome:
    """Return what became of the search. It is empty if there was none."""
    return next((found for tried, found in _outcomes if tried is prog), Outcome())


def stands_for_vmlinux(prog: Program) -> bool:
    """Return whether drgn has the kernel's own symbols and types, and no vmlinux."""
    try:
        return _NAME in (prog.main_module().debug_file_path or "")
    except LookupError:
        return False


def is_ours(module: Module) -> bool:
    """Return whether drgn has the symbols that a module has in the dump, and no file of its own."""
    return _OF_MODULE in (module.debug_file_path or "")


def add_types(prog: Program, release: str, files: Files) -> bool:
    """Give drgn the types of the dump's BTF behind those that it has, once. Return whether that is done.

    They are for modules whose own debug information nobody gave, beside a vmlinux. drgn asks the files in the order in
    which it got them, so the types of vmlinux stay those of vmlinux. No symbols and no variables come with them.
    """
    if _TYPES not in {module.name for module in prog.modules()}:
        try:
            types = replace(find(prog, files, Outcome()), symbols=KernelSymbols.of_module(b"", b"", False), modules=())
            data = types.file(release, b"", _is_aarch64(prog))
        except NotCarried:
            return False
        module = prog.extra_module(_TYPES, create=True)
        file = _in_memory(_TYPES, data)
        try:
            module.try_file(f"/proc/self/fd/{file}", force=True)
        finally:
            os.close(file)  # drgn has opened it for itself
    return True


def find(prog: Program, files: Files, found: Outcome) -> Carried:
    """Return what the dump carries, with the user's files in the place of what they have. Raises NotCarried.

    ``found`` gets what became of the files. A file that fails a proof is left out.
    """
    said = told(prog)
    symbols = _from_file(files.symbols, lambda path: _listed(prog, path, said), found)
    found.symbols = files.symbols if symbols is not None else None
    if symbols is None:
        symbols = own_symbols(prog, said)
    start, end = prove_symbols(prog, symbols, said)
    if not 0 <= said.moved <= start < end <= start + _LARGEST_IMAGE:
        raise NotCarried("_text, _end and KERNELOFFSET do not fit together")
    own = symbols
    btf = _from_file(files.types, lambda path: _types_of(prog, path, said, own), found)
    if btf is None:
        btf = _own_types(prog, symbols)
        prove_types(btf, said, symbols)
    else:
        found.types = files.types
    found.modules = loaded_modules(prog, symbols, btf)
    typed = [module for module in found.modules if module.btf is not None]
    joined, wrong = joined_types(btf, [module.btf for module in typed if module.btf is not None])
    broken = {id(module) for module, problem in zip(typed, wrong) if problem is not None}
    found.modules = [
        Loaded(module.name, module.symbols, None) if id(module) in broken else module for module in found.modules
    ]
    return Carried(symbols, joined, start - said.moved, end - said.moved, said.moved, found.modules)


def _from_file(path: Optional[str], read: Callable[[str], Any], found: Outcome) -> Any:
    """Return what a file of the user's has, or None without a file. One that fails a proof is noted."""
    if path is None:
        return None
    try:
        return read(path)
    except NotCarried as error:
        found.refused[path] = str(error)
        return None


def _listed(prog: Program, path: str, said: Told) -> KernelSymbols:
    """Return the symbols of a listing at the addresses of the dump. Raises NotCarried."""
    try:
        symbols = KernelSymbols.listed(listing(path))
    except ValueError as error:
        raise NotCarried(str(error)) from None
    first, last, stext = (one_address(symbols, name) for name in ("_text", "_end", "_stext"))
    if "_stext" not in said.symbols:
        raise NotCarried("VMCOREINFO has no _stext to compare with")
    # System.map has the addresses of vmlinux, and /proc/kallsyms those of one boot.
    symbols = symbols.moved(first, last + 1, (said.symbols["_stext"] - stext) % _64_BITS)
    prove_symbols(prog, symbols, said)
    return symbols


def _types_of(prog: Program, path: str, said: Told, symbols: KernelSymbols) -> bytes:
    """Return the types in a file. Raises NotCarried if they are not those of this kernel."""
    btf, build_id = btf_of(path)
    same_build(build_id, said)
    try:
        own = _own_types(prog, symbols)
        prove_types(own, said, symbols)
    except NotCarried:
        own = btf  # the file is for this
    if own != btf:
        raise NotCarried("it differs from the BTF that the dump holds: it is of another build")
    prove_types(btf, said, symbols)
    return btf


def _own_types(prog: Program, symbols: KernelSymbols) -> bytes:
    first, last = (one_address(symbols, name) for name in ("__start_BTF", "__stop_BTF"))
    if not 0 < last - first <= _LARGEST_BTF:
        raise NotCarried(f"BTF has {last - first:,} bytes")
    btf = read_memory(prog, first, last - first)
    if len(btf) < last - first:
        raise NotCarried("BTF is not whole in the dump")
    return btf


def _is_aarch64(prog: Program) -> bool:
    import drgn

    return prog.platform is not None and prog.platform.arch == drgn.Architecture.AARCH64


def _attach(prog: Program, module: Module, release: str, files: Files, found: Outcome) -> None:
    """Give drgn the file as the module's. It lives in memory as long as this process. Raises NotCarried."""
    data = find(prog, files, found).file(release, module.build_id or b"", _is_aarch64(prog))
    module.try_file(f"/proc/self/fd/{_in_memory(_NAME, data)}", force=True)


def _attach_module(prog: Program, module: Module) -> None:
    """Give drgn the symbols of a module. Its types are in the kernel's file."""
    symbols = next((one.symbols for one in outcome(prog).modules if one.name == module.name), None)
    if symbols is None:
        return
    file = _in_memory(_OF_MODULE, own_module_file(symbols, module.build_id or b"", _is_aarch64(prog)))
    try:
        module.try_file(f"/proc/self/fd/{file}", force=True)
    finally:
        os.close(file)  # drgn has opened it for itself


def _in_memory(name: str, data: bytes) -> int:
    """Return the descriptor of a file that has no place on a disk."""
    file = os.memfd_create(name)
    with open(file, "wb", closefd=False) as stream:
        stream.write(data)
    return file
