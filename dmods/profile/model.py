"""The model of a heap profile: samples, each a stack with values and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Union

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple

SPACE, OBJECTS = "inuse_space", "inuse_objects"
ALLOC_SPACE, ALLOC_OBJECTS = "alloc_space", "alloc_objects"
#: The types of values in the order in which Go writes them (runtime/pprof/protomem.go), with their units.
TYPES = ((ALLOC_OBJECTS, "count"), (ALLOC_SPACE, "bytes"), (OBJECTS, "count"), (SPACE, "bytes"))
#: The types of a recorder that does not count frees: no zeros stand for what is not known.
IN_USE = TYPES[2:]
TRUNCATED = "[truncated]"  # the outermost frame of a stack that goes on
BASE = "pprof::base"  # the label of the samples of a base that were subtracted (pprof, profile/profile.go)
UNKNOWN = "?"

Label = tuple[str, Union[str, int]]  # a number is in bytes


class Line(NamedTuple):
    """A function at a location. What is not known is "" or 0. ``system_name`` is the name in the symbol table."""

    function: str
    system_name: str = ""
    file: str = ""
    line: int = 0


class Mapping(NamedTuple):
    """A mapped piece of a file. ``build_id`` is lower-case hex or "".

    ``functions`` says that each location in it has a function. The other flags say that files, lines and inlined
    functions were looked up, and some were found.
    """

    start: int
    end: int
    offset: int
    path: str
    build_id: str
    functions: bool = False
    files: bool = False
    lines: bool = False
    inlined: bool = False


class Location(NamedTuple):
    """A place in the code, or a holder of blocks (``address`` is 0 then).

    ``mapping`` is the index of the mapping plus 1; 0: not known. ``address`` lies in the instruction: it is
    the return address minus 1. ``lines`` are the functions there, innermost first; () where no symbol is known.
    """

    mapping: int
    address: int
    lines: tuple[Line, ...]


class Raw(NamedTuple):
    """The recorder's own values of a sample, not scaled: the addresses of the whole stack, blocks and bytes."""

    addresses: tuple[int, ...]
    blocks: int
    bytes: int


class Sample(NamedTuple):
    """A stack as indices of locations, leaf first, with one value for each type, and labels."""

    stack: tuple[int, ...]
    values: tuple[int, ...]
    labels: tuple[Label, ...] = ()
    raw: Optional[Raw] = None

    def label(self, key: str) -> str:
        """Return the label of that name, or UNKNOWN."""
        return next((str(value) for name, value in self.labels if name == key), UNKNOWN)


@dataclass
class Profile:
    """A heap profile. ``types`` are (type, unit) of the values.

    ``period`` is the mean number of bytes between two samples; 1 where every block was recorded. ``source`` says where
    the profile comes from. ``mapped`` are (start, end, flags, offset, path) of the process's mappings, for forms whose
    readers look up symbols themselves. ``time`` is in ns since 1970; 0 where it is not known.
    ``jemalloc`` says that jemalloc recorded it, ``unbiased`` that its own profiles are corrected for the mix of sizes.
    """

    types: Sequence[tuple[str, str]] = IN_USE
    samples: list[Sample] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    mapped: list[tuple[int, int, str, int, str]] = field(default_factory=list)
    period: int = 1
    source: str = ""
    time: int = 0
    jemalloc: bool = False
    unbiased: bool = False

    def type_index(self, name: str) -> Optional[int]:
        """Return the place of a type among the values of a sample, or None."""
        return next((place for place, (kind, _unit) in enumerate(self.types) if kind == name), None)
