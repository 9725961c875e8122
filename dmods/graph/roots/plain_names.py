"""Names of roots as a person knows them: ``main: srv.by_token``, without the thread and the number of the frame.

The full name of a root has these. It is needed where two roots have one name, and for a debugger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.graph.roots.named_roots import NamedRoots
from dmods.graph.roots.ranked_root import Root

_MOST_WORDS = 1 << 10  # of a root that are looked at. A larger root is named as a whole
# [lex.name]: such names are the implementation's. The members of a container say nothing to its user, nor do those of
# the C library's own variables.
_INSIDE = regex(r"\.(_[A-Z]|__).*")
_OWN = regex(r"((?:_[A-Z]|__)\w*).*")


class Word(NamedTuple):
    """A word of a root that points into a block. ``part`` is the part of the variable there; "": it is not known."""

    address: int
    value: int
    part: str


def outer_part(place: str) -> str:
    """Return a part of a variable without the inner members of a container: "srv.by_token"."""
    own = _OWN.fullmatch(place)
    return own[1] if own is not None else _INSIDE.sub("", place)


class RootNames:
    """The names of the roots of one process."""

    def __init__(self, roots: NamedRoots) -> None:
        self._roots = roots
        self._thread = roots.target.pid  # the thread that need not be named

    @cached_property
    def _times(self) -> Counter[str]:
        return Counter(self._short(root, "") for root in self._roots.all_roots())

    def name(self, root: Root, part: str = "") -> str:
        """Return the name of a root, or of a part of its variable. Where two roots have one name, the frame tells."""
        short = self._short(root, part)
        if root.kind != "frame" or root.frame is None or self._times[self._short(root, "")] == 1:
            return short
        return f"{short} (frame {root.frame})"

    def _short(self, root: Root, part: str) -> str:
        thread = "" if root.tid in (None, self._thread) else f" of thread {root.tid}"
        if root.kind == "frame" and root.frame is not None:
            function = root.where or root.alike.partition(" in ")[0]
            if root.variable is None:
                return f"the frame of {function}{thread}"
            return f"{function}: {part or root.variable}{thread}"
        if root.kind == "register" and root.frame is not None:
            return root.name.rpartition(" in ")[0] + thread
        if root.kind == "thread-local" and (part or root.variable):
            return f"thread-local {part or root.variable}{thread}"
        return f"{root.module}`{part}" if part and root.module is not None else root.name

    def in_all_threads(self, root: Root) -> str:
        """Return the name of a root of a thread without the thread: other threads have a root of this name, too."""
        return self._short(replace(root, tid=None), "")

    def words(self, number: int, most: int = _MOST_WORDS) -> Optional[list[Word]]:
        """Return the words of root number `number` that point into blocks, or None where its memory has too many."""
        heap, areas = self._roots.heap, self._areas.get(number, [])
        if sum(end - start for start, end in areas) > most * heap.words.size:
            return None
        found = []
        for at in self._roots.heap_words(areas):
            value = heap.words.at(at)
            if value is not None and heap.index.engine.find(value) is not None:
                found.append(Word(at, value, outer_part(self._roots.part(number, at) or "")))
        return found

    @cached_property
    def _areas(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for start, end, number, _rank in self._roots.areas:
            found.setdefault(number, []).append((start, end))
        return found


def one_part(words: Sequence[Word]) -> str:
    """Return the part of a variable that all of the words are in, or "" where they are in several."""
    parts = {word.part for word in words}
    return parts.pop() if len(parts) == 1 else ""
