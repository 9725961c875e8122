"""Judge a pointer that was given to free(), realloc() or operator delete: freed before, or no block of malloc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.allocators.vocabulary import Place
from dmods.finding import CERTAIN, LIKELY, Evidence, Finding, Parties, fatal
from dmods.heap.block import FREE, OWN, Block
from dmods.heap.damage import Damage
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.triage.bindings import REMEDY, mix_evidence, mix_sentence, mixes
from dmods.triage.facts import ProcessFacts
from dmods.triage.freed import Freed, freed_memory
from dmods.triage.given import Given
from dmods.triage.held_blocks import history
from dmods.triage.names import function_of

ONE_OWNER = "set a pointer to NULL when its block is freed, or let one owner free it"
SECOND_OWNER = (
    "the block was allocated again in between, and its first owner freed it late; a block in use whose content "
    "is not what the caller expects would be evidence for this"
)
RECORD = "`dmods run --audit audit,log,guards -- PROG` records who frees and who overruns"
GLIBC = "glibc malloc"
_ONLY_BLOCKS = "give back the pointer that malloc returned, and nothing else"


def judge(
    facts: ProcessFacts, given: Given, found: Sequence[Damage], may_be_free: bool, is_free: bool = False
) -> Optional[Finding]:
    """Return what is wrong with the pointer; None where a block in use begins there, or a damaged one may.

    ``may_be_free``: malloc has not yet seen that the block is in use. ``is_free``: it has seen that the block is free.
    """
    heap, value = facts.heap, given.value
    block = heap.index.block_at(value)
    if block is not None and block.allocator != GLIBC:
        return _foreign(facts, given, f"begins a block of {block.allocator}", CERTAIN)
    if _is_hidden(facts, value, block, found):
        return None
    starts = block is not None and block.address == value and block.state != OWN
    if starts and block is not None and block.state != FREE:
        return None
    freed = freed_memory(facts, value)
    if freed is not None:
        return double_free(facts, given, freed, is_free) if may_be_free else None
    where = place_of(facts, value, block)
    if block is None and value not in heap.owned and _is_unknown(facts, value) and mixes(facts.target):
        return _foreign(facts, given, f"lies {where}", LIKELY)
    return _invalid(facts, given, where, block)


def _is_hidden(facts: ProcessFacts, value: int, block: Optional[Block], found: Sequence[Damage]) -> bool:
    """Return whether damage hides which block begins at the pointer: the headers around it are not to be trusted."""
    header = 2 * facts.target.arch.word
    if any(damage.chunk <= value <= max(damage.resumed or 0, damage.chunk + header) for damage in found):
        return True
    if block is not None:
        return any(damage.chunk + header == block.address for damage in found)
    return value in facts.heap.owned and any(place.kind == "slack" for place in facts.finder.at(value))


def double_free(facts: ProcessFacts, given: Given, freed: Freed, is_free: bool) -> Finding:
    """Return the finding of a block that was free already. A pointer into merged memory was probably that of a block.

    A record tells a pointer into a freed block, which never was one of a block. ``is_free``: malloc says so itself.
    """
    value, caller = given.value, facts.own_place()
    begins = freed.start == value
    inside = bool(freed.by) and not begins
    what = "a pointer into freed memory" if inside else "a block that was free already"
    where = f", {freed.what.removeprefix('a freed block of ')}" if begins else f" lies {freed.where}"
    known = begins and (freed.whole or facts.heap.index.block_at(value) is not None)
    return fatal(
        "invalid-free" if inside else "double-free",
        CERTAIN if given.proven and (known or inside or is_free) else LIKELY,
        f"{caller} {given.verb} {what}: {value:#x}{where}{freed.history}",
        _ONLY_BLOCKS if inside else ONE_OWNER + ("" if facts.heap.records else f"; {RECORD}"),
        (freed.evidence,),
        next_=(f"whatis {value:#x}", "findstack"),
        or_="" if inside else SECOND_OWNER,
        parties=Parties(f"{given.function}, which {caller} called", freed.hurt, freed.blamed),
    )


def mixed(facts: ProcessFacts) -> Optional[Finding]:
    """Return the finding of a pointer that is not known, where two allocators serve the process; or None."""
    return _foreign(facts, Given(0, False), "", LIKELY) if mixes(facts.target) else None


def _foreign(facts: ProcessFacts, given: Given, where: str, confidence: str) -> Finding:
    """Return the finding of a block of another allocator. ``where`` is "" for a pointer that is not known."""
    caller, found = facts.own_place(), mixes(facts.target)
    pointer = f": {given.value:#x} {where}" if where else ""
    why = f"; two allocators are in use: {mix_sentence(found[0])}" if found else ""
    return fatal(
        "allocator-mismatch",
        confidence,
        f"{caller} {given.verb} a pointer that this allocator did not return{pointer}{why}",
        REMEDY if found else "give a block back to the allocator that it came from",
        mix_evidence(found[0]) if found else (Evidence(given.value, where),),
        next_=(f"whatis {given.value:#x}", "findstack") if where else ("findstack",),
        or_="the pointer was never one of a block: whatis says where it leads",
        parties=Parties(f"{given.function}, which {caller} called"),
    )


def _invalid(facts: ProcessFacts, given: Given, where: str, block: Optional[Block]) -> Finding:
    caller, value = facts.own_place(), given.value
    in_heap = value in facts.heap.owned
    sure = given.proven and not (in_heap and facts.damaged)
    or_ = "the variable held a block before, and this address was written over it"
    if in_heap:
        or_ = (
            "the pointer is right, and its block's header was overwritten; undamaged headers would be evidence "
            "against this"
        )
    hurt = f"the block at {block.address:#x}" if block is not None else ""
    return fatal(
        "invalid-free",
        CERTAIN if sure else LIKELY,
        f"{caller} {given.verb} a pointer that malloc did not return: {value:#x} lies {where}",
        _ONLY_BLOCKS,
        (Evidence(value, where),),
        next_=(f"whatis {value:#x}", "findstack"),
        or_=or_,
        parties=Parties(f"{given.function}, which {caller} called", hurt),
    )


def _is_unknown(facts: ProcessFacts, value: int) -> bool:
    """Return whether the memory is neither a stack nor a module's: another allocator may have it."""
    kinds = {place.kind for place in facts.finder.at(value)}
    return kinds == {"mapping"} and mapping_at(facts.target, value) is not None


def place_of(facts: ProcessFacts, value: int, block: Optional[Block]) -> str:
    """Return where a pointer leads that is not the start of a block, as a phrase that follows "lies"."""
    if block is not None:
        size, offset = block.size, value - block.address
        if block.state == OWN:
            return f"{offset:#x} bytes into a block of {block.allocator}'s own"
        return f"{offset:#x} bytes into a block of {size} bytes{history(facts, block)}"
    on_stack = _on_own_stack(facts, value)
    if on_stack:
        return on_stack
    places = facts.finder.at(value)
    return _elsewhere(facts, value, places[0]) if places else "in no mapping"


def _elsewhere(facts: ProcessFacts, value: int, place: Place) -> str:
    """Return a place beside blocks and the stack of the thread that died."""
    module, mapping = module_at(facts.target, value), mapping_at(facts.target, value)
    if place.kind == "module" and module is not None and mapping is not None:
        part = "code" if "x" in mapping.flags else "data" if "w" in mapping.flags else "read-only data"
        named = facts.target.symbol_at(value) is not None
        at = f"at {place.brief}" if named else f"{value - module.start:#x} bytes from its start"
        return f"in the {part} of {module.name}, {at}"
    if facts.private:
        return f"in other memory ({place.kind})"
    text = place.brief if place.kind == "header" else place.text
    return text if text.startswith(("in ", "on ")) else f"in the {text}"


def _on_own_stack(facts: ProcessFacts, value: int) -> str:
    """Return the frame of the thread that died that holds the address, in words; "" where none does."""
    kinds = {place.kind for place in facts.finder.at(value)}
    inside = [number for number, frame in enumerate(facts.frames) if frame.sp <= value]
    if (
        "stack" not in kinds
        or not inside
        or mapping_at(facts.target, value) != mapping_at(facts.target, facts.frames[0].sp)
    ):
        return ""
    name = facts.names[inside[-1]]
    function = function_of(name)
    function = name if function.startswith("0x") else function
    last = inside[-1] == len(facts.frames) - 1
    where = f"in or above the outermost frame, {function}" if last else f"in the frame of {function}"
    return f"on the stack of thread {facts.named(facts.thread)}, {where}"
