"""Blocks that one allocator gives and another one takes back: slots of modules that contradict each other."""

from __future__ import annotations

from dmods.base.named_tuple import NamedTuple
from dmods.finding import Evidence
from dmods.process.malloc_slots import ALLOCATE, RELEASE, Slot, providers, slots
from dmods.target import Module, Target

REMEDY = "let one allocator serve the whole process: link or preload it first, and do not use RTLD_DEEPBIND"


class Mix(NamedTuple):
    """A module whose blocks are released by another allocator: two slots that differ."""

    takes: Slot
    gives: Slot


def mixes(target: Target) -> list[Mix]:
    """Return pairs of slots where one allocator serves malloc() and another one free(); [] for one allocator.

    Both slots are of one module; or the second is the program's: a library has an allocator of its own.
    """
    if len(providers(target)) < 2:
        return []
    found = slots(target)
    out: list[Mix] = []
    program = [slot for slot in found if slot.module.path == target.executable and slot.function in RELEASE]
    by_module: dict[int, list[Slot]] = {}
    for slot in found:
        by_module.setdefault(slot.module.start, []).append(slot)
    for own in by_module.values():
        takes = [slot for slot in own if slot.function in ALLOCATE]
        gives = [slot for slot in own if slot.function in RELEASE] + program
        # A library that defines malloc() and asks another malloc_usable_size() passes its own calls on to that one.
        gives = [slot for slot in gives if slot.function != "malloc_usable_size" or not _serves(own, slot.module)]
        pair = next(((a, b) for a in takes for b in gives if a.server.start != b.server.start), None)
        if pair is not None:
            out.append(Mix(*pair))
    return out


def _serves(slots: list[Slot], module: Module) -> bool:
    """Return whether a slot of malloc's family leads into the module itself."""
    return any(slot.server.start == module.start and slot.function in ALLOCATE for slot in slots)


def mix_sentence(mix: Mix) -> str:
    """Return both slots in words."""
    takes, gives = mix.takes, mix.gives
    return (
        f"{takes.module.name} allocates by {takes.function}() of {takes.server.name}, and {gives.module.name} frees "
        f"by {gives.function}() of {gives.server.name}"
    )


def mix_evidence(mix: Mix) -> tuple[Evidence, ...]:
    """Return the slots."""
    return tuple(
        Evidence(slot.address, f"the slot of {slot.module.name} for {slot.function}() leads to {slot.server.name}")
        for slot in mix
    )
