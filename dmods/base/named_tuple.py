"""Named tuples, as the standard library's ``typing.NamedTuple``, that cost almost nothing to define.

The standard library's makes each class twice, checks each annotation and compiles a method: 0.15 ms for a class, and
the modules that a command imports have about eighty. Here the constructor is compiled for a class that has more than a
few instances.

Type checkers see the standard library's own. Instances behave the same. ``__annotations__`` stay text.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

_SELDOM = 16  # instances that are made without a compiled constructor: it takes as long as 30 of them

if TYPE_CHECKING:
    from typing import NamedTuple


def _getter(place: int, text: str) -> Any:
    return property(itemgetter(place), doc=text)


with suppress(ImportError):  # what collections.namedtuple uses: twice as fast
    from _collections import _tuplegetter as _getter  # type: ignore[import-not-found, no-redef]


class _Meta(type):
    """Turn a class statement below NamedTuple into a class below tuple."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
        if not bases:  # NamedTuple itself
            return super().__new__(cls, name, bases, members)
        fields = tuple(members.get("__annotations__", ()))
        defaults = {field: members[field] for field in fields if field in members}
        if list(defaults) != list(fields[len(fields) - len(defaults) :]):
            raise TypeError(f"{name}: a field without a default follows one that has a default")
        made: type = type(name, (tuple,), {**_METHODS, **members, **_fields(fields, defaults)})
        made.__new__ = _first_new(made, fields, defaults)  # type: ignore[method-assign]
        return made


if not TYPE_CHECKING:

    class NamedTuple(metaclass=_Meta):
        """The base that a class statement names."""


def _fields(fields: tuple[str, ...], defaults: dict[str, Any]) -> dict[str, Any]:
    getters = {field: _getter(place, f"Alias for field number {place}") for place, field in enumerate(fields)}
    return {**getters, "_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__slots__": ()}


def _first_new(made: type, fields: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """Return the constructor of the first instances."""
    left = _SELDOM

    def __new__(cls: type, *args: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0 and len(args) <= len(fields):
            rest = fields[len(args) :]
            given = {**defaults, **keywords}
            if len(rest) == sum(field in given for field in rest) and keywords.keys() <= {*rest}:
                return tuple.__new__(cls, (*args, *(given[field] for field in rest)))
        # A call that does not fit gets Python's own error. Every name here begins with an underscore: no field may.
        names = {"_new": tuple.__new__, **{f"_default_{field}": value for field, value in defaults.items()}}
        parameters = [f"{field}=_default_{field}" if field in defaults else field for field in fields]
        values = "".join(f"{field}, " for field in fields)
        exec(f"def __new__(_cls, {', '.join(parameters)}):\n return _new(_cls, ({values}))", names)
        made.__new__ = names["__new__"]  # type: ignore[method-assign]
        return made.__new__(cls, *args, **keywords)

    return __new__


def _make(cls: type, values: Iterable[Any]) -> Any:
    made: Any = tuple.__new__(cls, values)
    if len(made) != len(made._fields):
        raise TypeError(f"Expected {len(made._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {[*changes]!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self))})"


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_METHODS = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "_asdict": _asdict,
    "__repr__": _repr,
    "__getnewargs__": _values,  # for copy and pickle
}
