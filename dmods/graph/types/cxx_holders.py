"""Functions of libstdc++ and libc++ that say what a block is.

* A `std::function` of libstdc++ is {functor or a pointer to it, manager, invoker} (bits/std_function.h). The manager's
  symbol names the functor's type. A small functor stands in the function itself, and its first word may well be a
  pointer to something else. Only a manager that calls operator new or delete has its functor on the heap. libc++
  keeps the functor behind a vtable.
* `std::any` is {manager, value or a pointer to it}. Large values have managers of their own (libstdc++'s any:
  _Manager_external; libc++'s any: _LargeHandler).
* libstdc++ allocates a pool at its start, from which exceptions are thrown when malloc fails: 72,704 bytes in most
  releases. Its static variable has the list of free entries, the pool and its size, one behind the other
  (libsupc++/eh_alloc.cc, class pool).
* `std::stringbuf`, also that of a string stream, has a string behind a streambuf. The symbol of its vtable is in the
  library, so stripped programs have it, too. libstdc++: 6 places in the buffer, locale, mode, then the string: pointer,
  length, capacity (std/sstream, bits/basic_string.h). libc++: locale, 6 places, then the string: capacity, length,
  pointer (sstream, string).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.class_names import split_template
from dmods.base.regex import regex
from dmods.graph.types.code_branches import INSTRUCTION, behind_stub, branch_target
from dmods.graph.types.type_name import Mark, TypeName
from dmods.modules.data import module_data
from dmods.target import Symbol, Target

EXCEPTION_POOL = "libstdc++'s pool for exceptions"
_MANAGER = "10_M_managerERSt9_Any_data"
_INVOKE = "9_M_invokeE"
_EXTERNAL, _LARGE = "17_Manager_external", "13_LargeHandler"
_STRINGBUF = "15basic_stringbufI"
_PARTS = (_MANAGER, _INVOKE, _EXTERNAL, _LARGE, _STRINGBUF)
# The vtable of a basic_stringbuf, and the words from its pointer where the string's pointer and capacity stand. The old
# string of libstdc++ (no __cxx11) begins with another header. libc++'s namespace is std::__1, or another version.
_STRINGBUFS = (
    (regex(r"_ZTVNSt7__cxx1115basic_stringbufI(.)St11char_traitsI\1ESaI\1EEE$"), 9, 11),
    (regex(r"_ZTVNSt\d+__\w*?15basic_stringbufI(.)NS_11char_traitsI\1EENS_9allocatorI\1EEEE$"), 10, 8),
)
_CHARACTERS = {"c": ("char[]", 1), "w": ("wchar_t[]", 4)}  # Itanium C++ ABI, 5.1.5.2
_ALLOCATING = ("_Znwm", "_Znwj", "_ZdlPv", "_ZdlPvm", "_ZdlPvj", "malloc", "free")
# bits/std_function.h, _Base_manager: its functions get a true or false for whether the functor is stored in place
_ON_HEAP, _IN_PLACE = "17integral_constantIbLb0EE", "17integral_constantIbLb1EE"
_MOST_CODE = 4096  # bytes of a function that are read
_MOST_FUNCTIONS = 24  # functions that are read to find out what one manager does
_MOST_MANAGERS = 4096
_MOST_DATA = 1 << 20  # bytes of libstdc++'s data that are read
_POOL = range(1 << 12, 1 << 20)  # bytes of its pool: GLIBCXX_TUNABLES may change them, and 32-bit programs have fewer


def cxx_marks(target: Target) -> Iterator[Mark]:
    """Yield the marks of holders in C++ programs."""
    symbols = target.symbols_with(_PARTS)
    if symbols:
        yield from _functions(target, symbols)
        yield from _anys(symbols)
        yield from _stringbufs(target, symbols)


def _functions(target: Target, symbols: Sequence[Symbol]) -> Iterator[Mark]:
    invokers = {symbol.name.partition(_INVOKE)[0]: symbol.address for symbol in symbols if _INVOKE in symbol.name}
    managers = [symbol for symbol in symbols if _MANAGER in symbol.name and "." not in symbol.name]
    calls = _Calls(target)
    for symbol in managers[:_MOST_MANAGERS]:
        owner = _engine.demangle(symbol.name).rpartition("::_M_manager")[0]
        outer, arguments = split_template(owner)
        if outer not in ("std::_Function_handler", "std::_Function_base::_Base_manager") or not arguments:
            continue
        if not calls.allocates(symbol):
            continue
        name = TypeName(arguments[-1], "std::function", "likely")
        # Older releases share a manager between signatures: then the invoker's symbol has another class.
        invoker = invokers.get(symbol.name.partition(_MANAGER)[0])
        yield Mark(symbol.address, name, -2, *((1, invoker) if invoker is not None else ()))


def managed_types(target: Target) -> list[tuple[int, str]]:
    """Return the functions that manage large values of std::any, by address, and the types of these values."""
    return list(_managed(target.symbols_with((_EXTERNAL, _LARGE))))


def _anys(symbols: Sequence[Symbol]) -> Iterator[Mark]:
    for address, name in _managed(symbols):
        yield Mark(address, TypeName(name, "std::any", "likely"), 1)


def _managed(symbols: Sequence[Symbol]) -> Iterator[tuple[int, str]]:
    for symbol in symbols:
        if (_EXTERNAL not in symbol.name and _LARGE not in symbol.name) or "." in symbol.name:
            continue
        owner, _, method = _engine.demangle(symbol.name).rpartition("::")
        outer, arguments = split_template(owner)
        known = {"_Manager_external": ("_S_manage",), "_LargeHandler": ("__handle", "__handle[abi")}
        if outer.startswith("std::") and arguments and method.startswith(known.get(outer.rpartition("::")[2], ("\0",))):
            yield symbol.address, arguments[0]


def _stringbufs(target: Target, symbols: Sequence[Symbol]) -> Iterator[Mark]:
    for symbol in symbols:
        for pattern, pointer, room in _STRINGBUFS if _STRINGBUF in symbol.name else ():
            found = pattern.match(symbol.name)
            if found is not None and found.group(1) in _CHARACTERS:
                text, width = _CHARACTERS[found.group(1)]
                name = TypeName(text, "std::stringbuf", "likely")
                # Before the address point stand the offset to top and the type_info (Itanium C++ ABI, 2.5.2).
                value = symbol.address + 2 * target.arch.word
                yield Mark(value, name, pointer, room=room, width=width)


def pool_marks(target: Target) -> Iterator[Mark]:
    """Yield the mark of libstdc++'s pool for exceptions."""
    for free, _pool, size in exception_pools(target):
        yield Mark(free, TypeName(EXCEPTION_POOL, "libstdc++", "proven"), 1, 2, size, size)


@cached
def exception_pools(target: Target) -> list[tuple[int, int, int]]:
    """Return (the first free entry, the block, the bytes asked for) of libstdc++'s pool for exceptions."""
    modules = [module for module in target.modules() if module.name.startswith("libstdc++.so")]
    image, word = target.image(), target.arch.word
    found = []
    for start, end in module_data(target) if modules else ():
        if not any(module.start < end and start < module.end for module in modules):
            continue
        data = image.read(start, min(end - start, _MOST_DATA))
        words = struct.unpack(f"<{len(data) // word}{'Q' if word == 8 else 'I'}", data[: len(data) // word * word])
        for free, pool, size in zip(words, words[1:], words[2:]):
            if pool and _POOL.start <= size < _POOL.stop and pool <= free < pool + size:
                found.append((free, pool, size))
    return found


class _Calls:
    """Finds out whether a function allocates or frees memory, by its own code and by that of the functions it calls."""

    def __init__(self, target: Target) -> None:
        self.target = target
        found = (target.lookup(name) for name in _ALLOCATING)
        self._allocating = {symbol.address for symbol in found if symbol is not None}
        self._known: dict[int, list[int]] = {}

    def allocates(self, function: Symbol) -> bool:
        """Return whether it does. False where the code is not in the dump or not understood."""
        todo, seen = [function], {function.address}
        for _step in range(_MOST_FUNCTIONS):
            if not todo:
                return False
            for address in self._called(todo.pop(0)):
                symbol = self.target.symbol_at(address)
                name = symbol.name if symbol is not None and symbol.address == address else ""
                if address in self._allocating or name in _ALLOCATING or _ON_HEAP in name:
                    return True
                if _IN_PLACE in name:
                    return False
                if symbol is not None and name and address not in seen:
                    seen.add(address)
                    todo.append(symbol)
        return False

    def _called(self, function: Symbol) -> list[int]:
        """Return the addresses that a function calls or jumps to, outside itself."""
        if function.address not in self._known:
            size = min(function.size, _MOST_CODE)
            code = self.target.image().read(function.address, size)
            end = function.address + size
            found = [behind_stub(self.target, to) for to in self._branches(code, function.address)]
            self._known[function.address] = [to for to in found if not function.address <= to < end]
        return self._known[function.address]

    def _branches(self, code: bytes, address: int) -> Iterator[int]:
        at = 0
        while at < len(code):
            found = _engine.disassemble(self.target.arch.name, code[at : at + INSTRUCTION], address + at)
            if found is None:
                return
            text, length = found
            to = branch_target(text, address + at)
            if to is not None:
                yield to
            at += max(1, length)
