"""The symbols of vmlinux that dmods reads itself, against drgn's search by address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from drgnext.kernel.stacks.vmlinux_symbols import VmlinuxSymbols
from fixtures import kernel
from tests.kernel.crashed import open_program

_FEW = 300  # drgn takes 0.7 ms for each question


def _program() -> Any:
    return open_program(kernel.guest("6.1", crash="sysrq"), modules=False)


def _code(prog: Any) -> list[Any]:
    """Return drgn's own list of symbols, those in the kernel's text, by address."""
    start, end = prog.symbol("_stext").address, prog.symbol("_etext").address
    return sorted((one for one in prog.symbols() if start <= one.address < end), key=lambda one: one.address)


def _places(symbols: Iterable[Any]) -> set[int]:
    """Return the first and the last byte of each symbol, the bytes before and behind it, and one inside."""
    return {at for one in symbols for at in (one.address + n for n in (-1, 0, one.size // 2, one.size - 1, one.size))}


def _drgns(prog: Any, address: int) -> tuple[str, int]:
    symbol = prog.symbol(address)
    return symbol.name, symbol.address


def _compare(prog: Any, places: set[int]) -> None:
    """Assert that every answer is drgn's, and that most questions have one."""
    symbols = VmlinuxSymbols(prog)
    found = {at: one for at in places if (one := symbols.at(at)) is not None}
    assert found == {at: _drgns(prog, at) for at in found}
    assert len(found) > len(places) // 2


def test_they_are_drgns() -> None:
    prog = _program()
    code = _code(prog)
    step = max(1, len(code) // (_FEW // 5))
    without_size = [one for one in code if one.size == 0]
    assert without_size
    places = _places(code[::step]) | _places(without_size[:: max(1, len(without_size) // (_FEW // 5))])
    _compare(prog, places)


@pytest.mark.thorough("drgn takes 0.7 ms for each of 200,000 questions")
@pytest.mark.parametrize("part", range(4))
def test_all_of_them_are_drgns(part: int) -> None:
    prog = _program()
    code = _code(prog)
    _compare(prog, _places(code[part::4]))


def test_an_address_of_several_symbols_has_no_answer() -> None:
    prog = _program()
    code = _code(prog)
    extents = Counter((one.address, one.size) for one in code if one.size)
    aliased = [address for (address, _size), count in extents.items() if count > 1]
    assert len(aliased) > 10
    symbols = VmlinuxSymbols(prog)
    assert {symbols.at(address) for address in aliased} == {None}


def test_addresses_outside_of_the_kernel_have_no_answer() -> None:
    symbols = VmlinuxSymbols(_program())
    assert [symbols.at(address) for address in (0, -1, 1 << 63, (1 << 64) - 1, 1 << 64)] == [None] * 5


def test_other_symbols_of_the_prompt_come_first() -> None:
    prog = _program()
    address = prog.symbol("do_idle").address
    assert VmlinuxSymbols(prog).at(address) == ("do_idle", address)
    prog.register_symbol_finder("mine", lambda _prog, _name, _address, _one: [], enable_index=0)
    assert VmlinuxSymbols(prog).at(address) is None
