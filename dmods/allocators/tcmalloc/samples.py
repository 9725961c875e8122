"""tcmalloc's own allocation records (`TCMALLOC_SAMPLE_PARAMETER`): who allocated each sampled block.

A sampled block has a span of its own, which leads to a `StackTrace`. The engine reads them and checks each
(engine/core/src/allocators/tcmalloc/sampled.rs). tcmalloc notes neither the time nor the thread.
"""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.allocators.recording import NOBODY, Recording
from dmods.allocators.tcmalloc.walked import walked
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.modules.data import module_data
from dmods.process.arguments import variable
from dmods.process.mappings import mapping_at
from dmods.target import Target

NAME = "tcmalloc's sampler"
#: The sampler is off without it (sampler.cc), unless the program sets the flag of that name.
VARIABLE = "TCMALLOC_SAMPLE_PARAMETER"
_RECOMMENDED = 1 << 19  # bytes: docs/tcmalloc.html
_MOST_DISTANCE = 1 << 58  # sampler.cc
_TRUNCATED = 1 << 48  # on the outermost address of a stack, for the engine (audit/format.h)


class Samples(NamedTuple):
    """The sampled blocks of one tcmalloc.

    ``rows`` are (address, address of the record, bytes asked for, index of the stack). ``refused`` is the check that
    failed: then there are no rows. ``missing`` and ``unlisted`` count spans without a sound record, and spans that the
    list does not lead to.
    """

    rows: list[tuple[int, int, int, int]]
    stacks: list[list[int]]
    missing: int = 0
    unlisted: int = 0
    refused: str = ""


@cached
def samples_of(target: Target) -> dict[int, Samples]:
    """Return the samples of each tcmalloc that sampled a block in use, by the address of its central caches."""
    return {one.central[0]: _read(target, one) for one in walked(target).found if one.sampled}


def _read(target: Target, inner: _engine.Tcmalloc) -> Samples:
    found, check = inner.samples(target.image(), list(module_data(target)))
    if found is None:
        return Samples([], [], refused=check)
    rows, stacks, _head, unlisted, missing, room = found
    code = sum(_is_code(target, stack[0]) for stack in stacks)
    if 2 * code < len(stacks):
        return Samples([], [], refused="most of their stacks do not begin in executable memory")
    return Samples(rows, [_marked(stack, room) for stack in stacks], missing, unlisted)


def notes_of(samples: Optional[Samples], count: int) -> list[str]:
    """Return what is uncertain about the samples. ``count`` is how many blocks were sampled."""
    if samples is None:
        return []
    if samples.refused:
        return [f"{count} blocks of tcmalloc were sampled, but their stacks are not read: {samples.refused}"]
    out = []
    if samples.missing:
        out.append(
            f"{samples.missing} of {count} sampled blocks of tcmalloc have no sound record: their callers are not known"
        )
    if samples.unlisted:
        out.append(
            f"tcmalloc's list of sampled blocks lacks {samples.unlisted} of {count}: it is damaged or was in change"
        )
    return out


@cached
def find_samples(target: Target) -> Optional[Recording]:
    """Return the records of the first tcmalloc that sampled any live block, or None."""
    samples = next((one for one in samples_of(target).values() if one.rows), None)
    return _recording(target, samples) if samples is not None else None


def _recording(target: Target, samples: Samples) -> Recording:
    distance = _distance(target)
    notes = []
    if distance is None:
        notes.append(
            f"{NAME}: the distance between its samples is not known ({VARIABLE} is not in the environment); "
            f"{_RECOMMENDED} bytes are assumed, which gperftools recommends"
        )
    mean = distance or _RECOMMENDED

    def load() -> _engine.Records:
        rows = [(address, trace, size, 0, stack + 1, 0) for address, trace, size, stack in samples.rows]
        return _engine.Records(rows, [], samples.stacks, mean)

    return Recording(NAME, load, [NOBODY], mean=mean, notes=notes, allocator="tcmalloc")


def _distance(target: Target) -> Optional[int]:
    """Return the mean number of bytes between two samples, as the environment gave it."""
    text = variable(target, VARIABLE) or ""
    value = int(text) if text.isascii() and text.isdigit() else 0
    return value if 0 < value <= _MOST_DISTANCE else None


def _is_code(target: Target, address: int) -> bool:
    mapping = mapping_at(target, address)
    return mapping is not None and "x" in mapping.flags


def _marked(stack: list[int], room: Optional[int]) -> list[int]:
    """Return the stack. It was cut if it has as many frames as a record has room for."""
    return [*stack[:-1], stack[-1] | _TRUNCATED] if room is not None and len(stack) >= room else stack
