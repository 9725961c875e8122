"""Classes of fields, as the standard library's ``dataclasses``, that cost almost nothing to define.

``dataclasses`` imports ``inspect`` (13 ms), and compiles up to six methods of every class while its module is imported:
0.4 ms each, 91 classes for ``findleaks``. That was a third of the command's time on a small core. Here one method,
``__init__``, is compiled (0.1 ms) for a class that has more than a few instances; the others are shared.

Type checkers see the standard library's own. What dmods uses of it behaves the same, but for two things: an assignment
to a field of a frozen class is an error of mypy's only, and a mutable default is not refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace

__all__ = ["as_mapping", "dataclass", "field", "field_names", "replace"]

_T = TypeVar("_T")
_MISSING: Any = object()
_FIELDS = "__record_fields__"
_SELDOM = 16  # instances that are made without a compiled method: it takes as long as 30 of them


class _Field:
    """The options of one field."""

    def __init__(self, default: Any, factory: Any, in_repr: bool, compared: bool) -> None:
        self.default, self.factory, self.in_repr, self.compared = default, factory, in_repr, compared


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of the fields of a class or of an instance; () if it has none."""
    return tuple(getattr(value, _FIELDS, ()))


def as_mapping(value: object) -> dict[str, Any]:
    """Return the fields of an instance by their names. Their values are not copied."""
    return {name: getattr(value, name) for name in field_names(value)}


if not TYPE_CHECKING:

    def field(
        *, default: Any = _MISSING, default_factory: Any = _MISSING, repr: bool = True, compare: bool = True
    ) -> Any:
        return _Field(default, default_factory, repr, compare)

    def replace(value: _T, /, **changes: Any) -> _T:
        if not hasattr(value, _FIELDS):
            raise TypeError(f"{type(value).__name__} is not one of these classes")
        return type(value)(**{**as_mapping(value), **changes})

    def dataclass(
        class_: Optional[type] = None, /, *, frozen: bool = False, eq: bool = True
    ) -> Callable[[type], type] | type:
        if class_ is None:
            return lambda decorated: _define(decorated, frozen, eq)
        return _define(class_, frozen, eq)


def _define(class_: type, frozen: bool, eq: bool) -> type:
    fields: dict[str, _Field] = {}
    for base in reversed(class_.__mro__[1:]):
        fields.update(base.__dict__.get(_FIELDS, {}))
    for name in vars(class_).get("__annotations__", {}):
        default = class_.__dict__.get(name, _MISSING)
        made = default if isinstance(default, _Field) else _Field(default, _MISSING, True, True)
        fields[name] = made
        if made is default:
            if made.default is _MISSING:
                delattr(class_, name)
            else:
                setattr(class_, name, made.default)
    setattr(class_, _FIELDS, fields)

    left = _SELDOM
    has_post_init = hasattr(class_, "__post_init__")

    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        nonlocal left
        left -= 1
        values = _values(fields, args, keywords) if left >= 0 else None
        if values is None:  # a call that does not fit gets Python's own error from the compiled method
            made = _compile_init(fields, has_post_init)
            class_.__init__ = made  # type: ignore[misc]
            made(self, *args, **keywords)
            return
        for name, value in values.items():
            setattr(self, name, value)
        if has_post_init:
            self.__post_init__()

    shared: dict[str, Any] = {"__init__": __init__, "__repr__": _repr}
    if eq:
        shared |= {"__eq__": _equal, "__hash__": _hash if frozen else None}
    for name, method in shared.items():
        # Python itself sets __hash__ to None where a class has an __eq__ of its own.
        if name == "__init__" or class_.__dict__.get(name) is None:
            setattr(class_, name, method)
    return class_


def _values(fields: dict[str, _Field], args: tuple[Any, ...], keywords: dict[str, Any]) -> Optional[dict[str, Any]]:
    """Return the values of all fields, in their order. None: the arguments do not fit."""
    values = dict(zip(fields, args))
    if len(args) > len(fields) or not keywords.keys() <= fields.keys() - values.keys():
        return None
    for name, made in fields.items():
        if name in values:
            continue
        if name in keywords:
            values[name] = keywords[name]
        elif made.factory is not _MISSING:
            values[name] = made.factory()
        elif made.default is not _MISSING:
            values[name] = made.default
        else:
            return None
    return values


def _compile_init(fields: dict[str, _Field], has_post_init: bool) -> Any:
    names: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, body = ["self"], []
    for name, made in fields.items():
        value = name
        if made.factory is not _MISSING:
            names[f"_make_{name}"] = made.factory
            parameters.append(f"{name}=_MISSING")
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        elif made.default is not _MISSING:
            names[f"_default_{name}"] = made.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"self.{name} = {value}")
    if has_post_init:
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    return names["__init__"]


def _compared(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name, made in getattr(value, _FIELDS).items() if made.compared)


def _equal(self: Any, other: object) -> Any:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, made in getattr(self, _FIELDS).items() if made.in_repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
