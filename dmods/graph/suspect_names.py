"""Names for suspects, as a person knows them: a variable, and what its blocks are and hold."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.dataclass import replace
from dmods.base.regex import regex
from dmods.base.sizes import counted
from dmods.graph.owners import Kept, Kind, Line, Owners
from dmods.graph.paths import path_to
from dmods.graph.root import Root
from dmods.graph.root_names import outer_part
from dmods.heap.content import describe_content
from dmods.heap.texts import printable

_LOOKED_AT = 4  # blocks whose holder is looked up
_SAMPLED = 6  # kinds whose example is read for a text
_LEAST_TEXT, _MOST_TEXT = 4, 24
_PART = regex(r" \((items|table|values)\)$")  # of a container of CPython: graph/python_names.py


def holder(owners: Owners, line: Line, blocks: Sequence[Kept]) -> str:
    """Return the root as a person knows it: "`server+0x30` (redis-server)", "`main: srv.by_token`".

    It is the part of a variable that all of the outermost blocks hang on, or else the whole variable.
    """
    names = set()
    only = owners.roots.number_of(line.roots[0]) if len(line.roots) == 1 else None
    for block in blocks[:_LOOKED_AT]:
        path = path_to(owners.roots, block.address, only, most=1)
        if path is not None and path.root is not None:
            names.add(_named(owners, path.root, path.steps[0].holder))
    if len(names) == 1:
        return names.pop()
    if not line.roots:
        return "a set of many roots"
    return _named(owners, line.roots[0], line.roots[0].name)


def _named(owners: Owners, root: Root, place: str) -> str:
    """Return the name of a word's place in a root."""
    if root.kind == "frame":
        # The place is the root's name, with the part of the variable where it is known.
        part = place[len(root.name) :].strip() if place.startswith(root.name) else ""
        return f"`{owners.names.name(root, outer_part(part))}`"
    if root.module is not None and "`" in place:
        return f"`{outer_part(place.split('`', 1)[1])}` ({root.module})"
    return f"`{place}`"


def with_parts(kinds: Sequence[Kind]) -> list[Kind]:
    """Return the kinds, most bytes first, where the tables and items of Python's containers count with these.

    "20,000 dict" says what the program made; their tables are blocks of their own.
    """
    whole = {kind.name: kind for kind in kinds}
    bytes_of = {kind.name: 0 for kind in kinds}
    for kind in kinds:
        container = _PART.sub("", kind.name)
        bytes_of[container if container in whole else kind.name] += kind.bytes
    found = [replace(kind, bytes=bytes_of[kind.name]) for kind in whole.values() if bytes_of[kind.name]]
    return sorted(found, key=lambda kind: (-kind.bytes, kind.name))


def named_kinds(kinds: Sequence[Kind]) -> str:
    """Return the first kind, and the second if it takes at least half as much memory as the first."""
    more = f", {_counted(kinds[1])}" if kinds[1:] and 2 * kinds[1].bytes >= kinds[0].bytes else ""
    return _counted(kinds[0]) + more


def _counted(kind: Kind) -> str:
    if kind.is_type:
        return f"{kind.count:,} {kind.name}"
    return f"{counted(kind.count, 'block')} of {kind.size:,} bytes"


def sample(owners: Owners, kinds: Sequence[Kind]) -> str:
    """Return a text from one of the blocks that there are many of: " (one holds 'user:1234')"; "" if they hold none."""
    for kind in [kind for kind in kinds if kind.count > 1][:_SAMPLED]:
        block = owners.heap.block_at(kind.example)
        if block is None:
            continue
        content = describe_content(owners.heap, block, most=1)
        for text in (content.text, *(string.text for string in content.strings)):
            shown = printable(text.encode()[:_MOST_TEXT]) if text else None
            if shown is not None and len(shown) >= _LEAST_TEXT:
                return f" (one holds '{shown}{'..' if text and len(text) > _MOST_TEXT else ''}')"
    return ""
