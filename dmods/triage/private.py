"""Take texts of the program out of a whole report: names of threads, and the samples of texts that shapes have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any, Callable, TypeVar

from dmods.base.dataclass import field_names, replace
from dmods.base.regex import regex

_T = TypeVar("_T")
# What blocks of a shape have in common: at most a word of text, and two dots (dmods/graph/types/kind_names.py). In HTML
# a quote is an entity.
_SAMPLE = regex(r"\btext (?:'.{1,10}'|&#x27;(?:&#?\w+;|.){1,10}&#x27;)")


def redacted(report: _T, names: Iterable[str]) -> _T:
    """Return the report without samples of texts, and without these names, which stand in brackets behind a number."""
    wanted = {form for name in names if name for form in (name, escape(name, quote=True))}
    each = "|".join(re.escape(name) for name in sorted(wanted, key=lambda name: (-len(name), name)))
    pattern = re.compile(rf"(?<=\d) \((?:{each})\)") if wanted else _SAMPLE
    found: _T = mapped(report, lambda text: pattern.sub("", _SAMPLE.sub("text", text)))
    return found


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it changed: in dataclasses, tuples, lists and mappings."""
    if isinstance(value, str):
        return change(value)
    names = () if isinstance(value, type) else field_names(value)
    if names:
        return replace(value, **{name: mapped(getattr(value, name), change) for name in names})
    if isinstance(value, tuple):
        parts = [mapped(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return value
