"""The name of a type, with its evidence, and short ids for types and kinds.

An id is a letter and the first digits of a 64-bit number, as many as tell the types apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmods.base.class_names import plain_class
from dmods.base.dataclass import dataclass, field

CONFIDENCES = ("taught", "proven", "likely", "assumed", "possible", "none")  # the surest first
_LEAST, _ALL = 6, 17  # characters of an id, with the letter


@dataclass(frozen=True)
class TypeName:
    """The name of a kind, and where it comes from.

    `evidence` is one or several of these, with ", " between them. The block says so itself: "vtable", "vtable symbol",
    "exception header", "coroutine". The runtime says so: "Go type", "Python type". Its holder says so: "std::function",
    "std::any", "std::stringbuf", "Rust vtable", "libstdc++". Other blocks of the same caller are of that type:
    "records". No type is known: "shape", "none".

    `confidence` is "proven" where the program itself names the type, "likely" where a symbol does, or where a vtable
    names a block that has room for more than the object (``Types.asked`` counts those that records prove), "assumed"
    where only other blocks do, and "none" for a shape: it tells kinds apart and names none.

    `full` is the type as the compiler writes it, with all arguments; empty where `text` is the only spelling.
    """

    text: str
    evidence: str
    confidence: str
    full: str = field(default="", compare=False)

    @property
    def row(self) -> tuple[str, str]:
        """Return what blocks of one row have in common: the text, and the group of the confidence.

        A type has one row, whether a block is proven or likely. What is only assumed is apart, and so are shapes.
        """
        return self.text, self.confidence if self.confidence in ("assumed", "none") else ""

    @property
    def is_type(self) -> bool:
        """Return whether it is a type, not a shape."""
        return self.confidence != "none"


def type_name(full: str, evidence: str, confidence: str, before: str = "") -> TypeName:
    """Return the name of a type that the compiler writes as `full`, with `before` in front of it."""
    return TypeName(before + plain_class(full), evidence, confidence, before + full)


def vtable_confidence(size: int, usable: int, word: int) -> str:
    """Return how sure it is that a block of ``usable`` bytes is the object whose vtable pointer stands at its start.

    The object has ``size`` bytes. "proven": it leaves no room for another word. "likely": it does. Then the block may
    be an optional, a variant, a tuple, a pair or a struct that begins with the object: these have one word more,
    because an object with a vtable is aligned to a word. glibc's malloc gives 40 usable bytes for both 32 and 40.
    What is in the word does not tell: a member may have any value, and malloc does not clear memory.
    """
    return "proven" if usable - size < word else "likely"


def kind_id(number: int) -> str:
    """Return the whole id of a kind."""
    return f"s{number:016x}"


def type_id(text: str) -> str:
    """Return the whole id of a type from debug information."""
    from hashlib import blake2b  # it brings OpenSSL: 3 ms

    return f"t{blake2b(text.encode(), digest_size=8).hexdigest()}"


def short_length(names: Iterable[str]) -> int:
    """Return how many characters tell all of the names apart."""
    different = set(names)
    lengths = range(_LEAST, _ALL)
    return next((n for n in lengths if len({name[:n] for name in different}) == len(different)), _ALL)


def named_so(short: str, names: Iterable[str]) -> set[str]:
    """Return the name that `short` means, the whole or its beginning; empty where it means none, or several."""
    found = {name for name in names if name.startswith(short)} if len(short) >= _LEAST else set()
    return found if len(found) == 1 else set()
