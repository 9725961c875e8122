"""The name of a type, with its evidence, and the values in memory that give one."""

from __future__ import annotations

from typing import Optional

from dmods.base.class_names import plain_class
from dmods.base.dataclass import dataclass, field

CONFIDENCES = ("taught", "proven", "likely", "assumed", "possible", "none")  # the surest first


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


@dataclass(frozen=True)
class Mark:
    """A value that says what a block is. The places are counted in words from the value.

    ``pointer``: where a pointer to the block stands; 0 if the value is the block's second word. ``beside`` must stand
    at ``beside_at``; 0: nothing is known. ``size`` is the size of the type, or None. ``counted`` is the name of the
    block if two counts of references stand before the value of that type. Then ``size`` is known.

    The block may be the buffer of a streambuf, whose vtable pointer the value is: then ``room`` is where the capacity
    stands, in elements of ``width`` bytes. A buffer has any size.
    """

    value: int
    name: TypeName
    pointer: int
    beside_at: int = 0
    beside: int = 0
    size: Optional[int] = None
    counted: Optional[TypeName] = None
    room: int = 0
    width: int = 0


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
