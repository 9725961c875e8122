"""The blocks that the dying thread held: in its registers, and in the callee-saved ones of its frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.finding import Evidence
from dmods.heap.block import FREE, Block
from dmods.heap.pointees import operands_of
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import first_own

_RUNTIME_FRAMES = 8  # frames that are looked at where none is the program's own
_MOST_FRAME = 1 << 14  # bytes of a frame that are read


class Held(NamedTuple):
    """A value in a register. ``block`` is the block that it points into; ``chunk``: it points to the header.

    ``memory``: the instruction that trapped uses the register as an address.
    """

    value: int
    register: str
    frame: int
    block: Optional[Block]
    chunk: bool = False
    memory: bool = False


def operands(facts: ProcessFacts) -> list[Held]:
    """Return the registers of the instruction that trapped: those of its memory operand first."""
    frame = facts.cause.frame
    if frame is None:
        return []
    found = operands_of(facts.target, facts.instruction)
    names = [*found.memory, *found.plain]
    known = frame.registers
    held = [_held(facts, known[name], name, 0) for name in names if name in known and name != facts.target.arch.sp]
    return [each._replace(memory=each.register in found.memory) for each in held]


def in_allocator(facts: ProcessFacts) -> Iterator[Held]:
    """Yield what the frames of the runtime hold, innermost first: each value once.

    The allocator keeps the chunk or block that it was given in registers that survive its calls.
    """
    own = first_own(facts.names)
    return _in_frames(facts, own + 1 if own is not None else _RUNTIME_FRAMES)


def thread_values(facts: ProcessFacts) -> Iterator[Held]:
    """Yield what the innermost frames of the thread that died hold."""
    return _in_frames(facts, _RUNTIME_FRAMES)


def _in_frames(facts: ProcessFacts, count: int) -> Iterator[Held]:
    """Yield what the innermost frames hold: their registers, then the words of their stack."""
    frames = facts.frames[:count]
    seen: set[int] = set()
    for number, frame in enumerate(frames):
        for name, value in frame.registers.items():
            if value not in seen and name not in (facts.target.arch.pc, facts.target.arch.sp):
                seen.add(value)
                yield _held(facts, value, name, number)
    # What they saved, or kept on the stack. The frame of the caller comes last.
    for number, (frame, following) in enumerate(zip(frames, facts.frames[1:])):
        size = min(max(0, following.sp - frame.sp), _MOST_FRAME)
        for value in facts.heap.words.many(frame.sp, size // facts.target.arch.word) or ():
            if value not in seen:
                seen.add(value)
                yield _held(facts, value, "stack", number)


def _held(facts: ProcessFacts, value: int, name: str, frame: int) -> Held:
    heap, word = facts.heap, facts.target.arch.word
    if value not in heap.owned:
        return Held(value, name, frame, None)
    header = heap.index.block_at(value + 2 * word)
    one = heap.heap_of(header) if header is not None and header.address == value + 2 * word else None
    if one is not None and one.has_headers:
        return Held(value, name, frame, header, chunk=True)
    return Held(value, name, frame, heap.index.block_at(value))


def history(facts: ProcessFacts, block: Block) -> str:
    """Return who freed or allocated the block, where that was recorded: ", freed by f, allocated by g"."""
    records, callers = facts.heap.records, facts.callers
    if block.state == FREE:
        last = records.last_of(block.address)
        if last is None or not last.freed:
            return ""
        text = f", freed by {callers.caller(last.stack).text}"
        if last.alloc_stack.frames:
            text += f", allocated by {callers.caller(last.alloc_stack).text}"
        return text
    record = records.of_block(block.address)
    return f", allocated by {callers.caller(record.stack).text}" if record is not None else ""


def block_evidence(facts: ProcessFacts, block: Block) -> Evidence:
    """Return the block with its size, its state and who had it."""
    state = facts.finder.holding(block) if block.state == FREE else "in use"
    return Evidence(block.address, f"block of {block.size} bytes, {state}{history(facts, block)}")
