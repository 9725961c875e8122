"""Names for suspects, as a person knows them: a variable, and what its blocks are and hold."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.dataclass import replace
from dmods.base.regex import regex
from dmods.base.sizes import counted
from dmods.graph.owners.heap_owners import Kept, Kind, Line, Owners, is_runtime
from dmods.graph.owners.root_paths import path_to
from dmods.graph.roots.named_roots import GARBAGE
from dmods.graph.roots.plain_names import RootNames, outer_part
from dmods.graph.roots.ranked_root import Root
from dmods.graph.suspects.accumulating import is_of_language

_LOOKED_AT = 4  # blocks whose holder is looked up
_NAMED = 3  # roots of a sentence
_REGISTER = regex(r"(register \w+) of frame \d+ \((.+?)\)( in .*)?$")
_ARRAY = "[]"
_PART = regex(r" \((items|table|values)\)$")  # of a container of CPython: graph/types/runtime_names.py


def holder(owners: Owners, line: Line, blocks: Sequence[Kept]) -> str:
    """Return the root as a person knows it: "`server+0x30` (redis-server)", "`main: srv.by_token`".

    It is the part of a variable that all of the outermost blocks hang on, or else the whole variable.
    """
    names = set()
    alone = len(line.roots) == 1 or any(map(is_runtime, line.roots))
    only = owners.roots.number_of(line.roots[0]) if alone else None
    for block in blocks[:_LOOKED_AT]:
        path = path_to(owners.roots, block.address, only, most=1, looks=False, owners=owners.engine)
        if path is not None and path.root is not None:
            names.add(named_place(owners.names, path.root, path.steps[0].holder))
    if len(names) == 1:
        return names.pop()
    if not line.roots:
        return "a set of many roots"
    return named_place(owners.names, line.roots[0], line.roots[0].name)


def holders(owners: Owners, line: Line) -> str:
    """Return the roots that share a line as a person knows them, at most three: "`head` (ht) and `tail` (ht)".

    What garbage leads to as well others hold.
    """
    roots = owners.leading_to(line)
    living = tuple(root for root in roots if root != GARBAGE)
    roots = living if len(living) > 1 else roots
    places = [named_place(owners.names, root, root.name) for root in roots[:_NAMED]]
    if len(roots) > _NAMED:
        places.append(f"{len(roots) - _NAMED:,} more")
    return " and ".join([", ".join(places[:-1]), places[-1]]) if places[1:] else "".join(places) or "many roots"


def place_of(root: Root, part: str) -> str:
    """Return the place of a part of a root's variable, as ``NamedRoots.place`` writes it."""
    if root.kind in ("variable", "data"):
        return f"{root.module}`{part}"
    return root.name if part == root.variable else f"{root.name} {part}"


def named_place(names: RootNames, root: Root, place: str, behind: str = "") -> str:
    """Return the name of a word's place in a root, in backticks. ``behind`` is a part of the blocks it leads to."""
    if root.kind == "frame":
        # The place is the root's name, with the part of the variable where it is known.
        part = place[len(root.name) :].strip() if place.startswith(root.name) else ""
        part = outer_part(part) or (root.variable or "" if behind else "")
        return f"`{names.name(root, part + behind)}`"
    register = _REGISTER.match(root.name) if root.kind == "register" else None
    if register is not None:
        return f"`{register[2]}: {register[1]}`"
    if root.module is not None and "`" in place:
        return f"`{outer_part(place.split('`', 1)[1])}{behind}` ({root.module})"
    return f"`{place}{behind}`"


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
    """Return the first kind, and the second if it takes at least half as much memory as the first.

    For arrays, which are mostly texts, return the objects that have them as well.
    """
    more = f", {counted_kind(kinds[1])}" if kinds[1:] and 2 * kinds[1].bytes >= kinds[0].bytes else ""
    if not more and kinds[0].name.endswith(_ARRAY):
        # Texts and buffers say less than the objects that have them.
        having = [kind for kind in kinds[1:] if _has(kind, kinds[0])]
        more = f", {counted_kind(having[0])}" if having else ""
    return counted_kind(kinds[0]) + more


def among_them(kinds: Sequence[Kind], count: int) -> str:
    """Return a part of a sentence: the first type of the program among `count` blocks ("30,000 Session among them").

    It is "" where each type is one of the language itself, or has fewer than one in 10 blocks.
    """
    for kind in kinds:
        if kind.is_type and not is_of_language(kind.name) and 10 * kind.count >= count:
            return f", {counted_kind(kind)} among them"
    return ""


def _has(kind: Kind, buffers: Kind) -> bool:
    """Return whether the kind is a type of objects, of which each may have one of the buffers or a few."""
    return kind.is_type and not kind.name.endswith(_ARRAY) and 4 * kind.count >= buffers.count


def counted_kind(kind: Kind) -> str:
    """Return how many blocks of the kind there are: "20,000 Session", "165 blocks of 1,048,576 bytes"."""
    if kind.is_type:
        return f"{kind.count:,} {kind.name}"
    return f"{counted(kind.count, 'block')} of {f'{kind.size:,} bytes' if kind.size else 'several sizes'}"
