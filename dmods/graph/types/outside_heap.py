"""Memory outside the heap, as the engine classifies pointers into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.modules.by_address import modules_by_address
from dmods.target import AddressRange, Module, Target

CODE, READ_ONLY, DATA, ELSEWHERE = 0, 1, 2, 3
Place = tuple[int, int, int, int, int]  # start, end, section, number of the module, its bias
_MOST_MODULES = 1 << 16


class Modules:
    """Numbers for modules that mean the same in several cores: by build-id, else by path.

    Number 0 stands for memory outside all modules.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._found: dict[int, list[tuple[Target, Module]]] = {}

    def number(self, target: Target, module: Module) -> int:
        """Return the number of a module, or 0 where there are too many."""
        key = module.build_id or module.path
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        if number >= _MOST_MODULES:
            return 0
        known = self._found.setdefault(number, [])
        if all(other is not target for other, _module in known):
            known.append((target, module))
        return number

    def address(self, number: int, offset: int) -> Optional[tuple[Target, int]]:
        """Return (a core, an address in it) for the offset in a module, or None for an unknown module."""
        known = self._found.get(number)
        if not known:
            return None
        target, module = known[0]
        return target, module.bias + offset & (1 << 64) - 1


def places(target: Target, modules: Modules) -> list[Place]:
    """Return the mappings of the target outside the heap as the engine takes them."""
    return list(_places(target, modules))


def _places(target: Target, modules: Modules) -> Iterator[Place]:
    found = modules_by_address(target)
    for mapping in target.mappings():
        module = found.at(mapping.start)
        if module is None:
            yield mapping.start, mapping.end, ELSEWHERE, 0, 0
        else:
            yield mapping.start, mapping.end, _section(mapping), modules.number(target, module), module.bias


def _section(mapping: AddressRange) -> int:
    if "x" in mapping.flags:
        return CODE
    return DATA if "w" in mapping.flags else READ_ONLY


def shifts(target: Target, modules: Modules) -> list[tuple[int, int, int]]:
    """Return (start, end, what to add) for each mapped module part, so that addresses of several cores compare.

    The sum is the number of the module in the upper 24 bits and the offset in the lower 40.
    """
    found = []
    for start, end, _section, number, bias in _places(target, modules):
        if number:
            found.append((start, end, ((number << 40) - bias) & (1 << 64) - 1))
    return found
