"""Names of types as a user would write them. All tables have them from here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Optional

from dmods import _engine

_OPEN, _CLOSE = "<([{", ">)]}"
_INPLACE = ("_Sp_counted_ptr_inplace", "__shared_ptr_emplace")
_CONTROL = ("_Sp_counted_ptr", "_Sp_counted_deleter", "_Sp_counted_array", "__shared_ptr_pointer")
_THREAD = "std::thread::_State_impl"  # libstdc++ (bits/std_thread.h)


@lru_cache(maxsize=1 << 16)
def plain_class(name: str) -> str:
    """Return the type as a user would write it.

    That is ``std::map<std::string, Order>`` without the namespaces of versions and without arguments that are
    defaults, and ``make_shared<Foo>`` for libstdc++'s or libc++'s control block. Two spellings of one type give the
    same name.
    """
    name = _engine.short_type(name)
    outer, arguments = split_template(name)
    if not outer.startswith("std::"):
        return name
    last = outer.rpartition("::")[2]
    if arguments and last in _INPLACE:
        return f"make_shared<{arguments[0]}>"
    if arguments and last in _CONTROL:
        return f"shared_ptr<{_pointed(last, arguments)}> control block"
    if arguments and last == "__func" and "__function" in outer:  # libc++ (__functional/function.h)
        return f"std::function holding {arguments[0]}"
    if arguments and outer == _THREAD:
        return f"std::thread running {_invoked(arguments[0])}"
    return name


def has_own_block(name: str) -> bool:
    """Return whether each object of a class is in a block of its own, and is never a member of something larger.

    So are the control blocks of shared_ptr and the states of std::thread. Their names are reserved for the library,
    and it allocates each of them alone (libstdc++: bits/shared_ptr_base.h, bits/std_thread.h; libc++:
    __memory/shared_ptr.h).
    """
    outer, arguments = split_template(_engine.short_type(name))
    is_control = outer.startswith("std::") and outer.rpartition("::")[2] in (*_INPLACE, *_CONTROL)
    return bool(arguments) and (is_control or outer == _THREAD)


def _pointed(control: str, arguments: Sequence[str]) -> str:
    """Return what the pointer of a control block leads to (libstdc++: bits/shared_ptr_base.h)."""
    first = arguments[0]
    if control == "_Sp_counted_array":  # made by make_shared<T[]>: the argument is an allocator
        outer, inner = split_template(first)
        return f"{inner[0]}[]" if inner and outer == "std::allocator" else first
    deleter = arguments[1] if len(arguments) > 1 else ""
    is_array = deleter == "std::__sp_array_delete" or (
        deleter.startswith("std::default_delete<") and deleter.endswith("[]>")
    )
    return first.rstrip("*").rstrip() + ("[]" if is_array else "")


def _invoked(text: str) -> str:
    """Return ``f`` for ``std::thread::_Invoker<std::tuple<f, int>>``."""
    for expected in ("std::thread::_Invoker", "std::tuple"):
        outer, arguments = split_template(text)
        if outer != expected or not arguments:
            return text
        text = arguments[0]
    return text


def split_template(name: str) -> tuple[str, list[str]]:
    """Return the template and its arguments: ("std::pair", ["int", "Foo<a, b>"]). No arguments: not a template.

    The last part of the name is meant: ``a<b>::c`` is no template.
    """
    start = _template_start(name)
    if start is None:
        return name, []
    arguments, depth, current = [], 0, ""
    for character in name[start + 1 : -1]:
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth < 0:
            return name, []  # operator> and the like
        if character == "," and not depth:
            arguments.append(current.strip())
            current = ""
        else:
            current += character
    return name[:start], [*arguments, current.strip()]


def _template_start(name: str) -> Optional[int]:
    """Return where the arguments begin that end with the name, or None."""
    if not name.endswith(">"):
        return None
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] in _CLOSE) - (name[at] in _OPEN)
        if depth == 0:
            return at if name[at] == "<" and at else None
    return None


def short_class(name: str) -> str:
    """Return the class without namespaces and template arguments."""
    outer, arguments = split_template(name)
    return outer.rpartition("::")[2] if not arguments or not outer.startswith("make_shared") else name


def named_alike(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that a user means by a text: the type in its long or short spelling.

    Where no name is spelled so, the text may lack namespaces, also inside the arguments of a template: ``Vec<Order>``
    for ``alloc::vec::Vec<prog::Order, alloc::alloc::Global>``. It may lack the last arguments, or all of them.
    """
    every = list(names)
    wanted = _spelled(plain_class(text))
    exact = [name for name in every if _spelled(name) == wanted]
    exact = exact or [name for name in every if _spelled(name).endswith(f"::{wanted}")]
    if exact:
        return exact
    if "<" in text:
        return [name for name in every if _engine.is_short(text, name)]
    return [name for name in every if _spelled(short_class(name)) == _spelled(short_class(text))]


def _spelled(name: str) -> str:
    for word in ("struct ", "union ", "class ", "enum "):
        name = name[len(word) :] if name.startswith(word) else name
    return "".join(name.split())
