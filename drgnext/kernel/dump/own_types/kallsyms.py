"""The symbol table that a kernel has in its own memory (kallsyms).

VMCOREINFO says where it is since kernel 6.0 ("kallsyms: export 'kallsyms_*' to vmcoreinfo"). In older kernels it is
found by its shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods._engine import KernelSymbols
from drgnext.kernel.dump.own_types.proofs import NotCarried, Told, read_memory

if TYPE_CHECKING:
    from drgn import Program

_LARGEST_TABLE = 64 << 20
_TOKENS = 16384  # 256 pieces of text
_TOKEN_INDEX = 512
_ARRAYS = ("num_syms", "names", "token_table", "token_index", "offsets")
# Bytes of the kernel's image behind _stext that are searched. The table is behind the code: 15 to 60 MB from there.
_SEARCHED = 256 << 20
_STEP = 4 << 20
# Bytes of a whole table, and more: 200,000 symbols take 3.5 MB, of which their names are the most.
_WINDOW = 32 << 20
_PAGE = 4096
_64_BITS = 1 << 64


def own_symbols(prog: Program, said: Told) -> KernelSymbols:
    """Return the symbols that the dump has. Raises NotCarried."""
    if all(said.symbols.get(f"kallsyms_{name}") for name in _ARRAYS):
        return _told_symbols(prog, said)
    return _found_symbols(prog, said)


def _told_symbols(prog: Program, said: Told) -> KernelSymbols:
    """Return the symbols of the table that VMCOREINFO tells of. Raises NotCarried."""
    count_at, names_at, tokens_at, index_at, offsets_at = (said.symbols[f"kallsyms_{name}"] for name in _ARRAYS)
    count = int.from_bytes(read_memory(prog, count_at, 4), "little")
    base_at = said.symbols.get("kallsyms_relative_base")
    base: Optional[int] = None
    if base_at is not None:
        base = int.from_bytes(read_memory(prog, base_at, 8), "little")
    try:
        return KernelSymbols(
            count,
            names=read_memory(prog, names_at, _room(names_at, tokens_at)),
            token_table=read_memory(prog, tokens_at, _TOKENS),
            token_index=read_memory(prog, index_at, _TOKEN_INDEX),
            offsets=read_memory(prog, offsets_at, min(4 * count, _LARGEST_TABLE)),
            offsets_at=offsets_at,
            base=base,
        )
    except (ValueError, OverflowError) as error:
        raise NotCarried(f"the kernel's symbol table: {error}") from None


def _room(start: int, after: int) -> int:
    """Return the bytes of the names. The tokens come behind them."""
    return after - start if 0 < after - start <= _LARGEST_TABLE else _LARGEST_TABLE


def _found_symbols(prog: Program, said: Told) -> KernelSymbols:
    """Return the symbols of the table that is found by its shape in the kernel's image. Raises NotCarried."""
    reason = "no table has its shape"
    stext = said.symbols.get("_stext", 0)
    for at, part in _parts(prog, stext):
        try:
            found = KernelSymbols.by_shape(part, at, stext)
        except ValueError as error:
            reason = str(error)
            continue
        if found is not None:
            return found
    raise NotCarried(
        "VMCOREINFO does not say where the kernel's symbol table is (it does since kernel 6.0), and the search for it "
        f"fails: {reason}; --symbols System.map helps"
    )


def _parts(prog: Program, stext: int) -> Iterator[tuple[int, bytes]]:
    """Yield parts of the kernel's image with their addresses. Each begins with the end of the one before.

    Pages are missing between code and data, where the kernel gives unused memory back.
    """
    part, here, end = bytearray(), stext, min(stext + _SEARCHED, _64_BITS) if stext else 0
    while here < end:
        step = min(_STEP, end - here)
        piece = read_memory(prog, here, step)
        part += piece
        here += len(piece)
        if piece:
            yield here - len(part), bytes(part)
            del part[:-_WINDOW]
        if len(piece) < step:
            part.clear()
            here += _PAGE - here % _PAGE
