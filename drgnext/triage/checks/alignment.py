"""Partitions and devices that lie across the blocks of the disk below."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from dmods.finding import CERTAIN, LIKELY, WASTE, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.layouts import SECTOR, Layout, layouts
from drgnext.triage.facts import KernelFacts

_BLOCK = 4096  # today's disks have such blocks, whatever they say
_LEAST = 16 << 20  # bytes: a boot loader's partition holds no files
_TRACK = 63  # sectors: the geometry that old tools laid partitions out by
_CYLINDER = 255 * _TRACK


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield each partition, stacked disk and loop device that does not begin at a block."""
    found = list(layouts(facts.reader))
    yield Measured(f"{len(found)} disks, partitions and loop devices")
    for one in found:
        if one.size < _LEAST:
            continue
        known = one.off != 0
        grain = one.grain if known else max(one.grain, _BLOCK)
        off = one.off if known else (-one.start % grain if one.kind != "disk" else 0)
        if off:
            yield Finding(
                "misaligned",
                WASTE,
                CERTAIN if known else LIKELY,
                f"{_place(one)}: {_how(one, grain, off, known)}; a write of one block touches two",
                _remedy(one, grain, off),
                [Evidence(one.address, f"{one.kind} {one.name}")],
                (f"disks {one.name}",),
                weight=one.size,
                alternative="the disk's real blocks are as small as it says: then nothing is lost",
                subject=one.name,
            )


def _place(one: Layout) -> str:
    below = ", ".join(one.below)
    if one.kind == "partition":
        return f"partition {one.name} begins at sector {one.start // SECTOR} of {below}"
    if one.kind == "loop":
        return f"{one.name} begins {one.start:,} bytes into {'its file' if below.startswith('/') else below}"
    return f"{one.name} lies on {below or 'a disk'}"


def _how(one: Layout, grain: int, off: int, known: bool) -> str:
    if off < 0:
        return "the devices below it have blocks that do not meet"
    if not known:
        return f"that is no multiple of {grain:,} bytes (it says that its blocks have {one.grain:,}; most have more)"
    return f"{grain - off:,} bytes into a block of {grain:,} bytes"


def _remedy(one: Layout, grain: int, off: int) -> str:
    if off < 0:
        return "make it again from devices with the same block size"
    sectors = grain // SECTOR
    if one.kind == "disk":
        return f"make it again with its data at a multiple of {sectors} sectors below (LVM: pvcreate --dataalignment)"
    if one.kind == "loop":
        return f"use an offset that is a multiple of {grain:,} bytes on the disk"
    start = (one.start + off) // SECTOR
    if start and one.start // SECTOR % _CYLINDER == 0:
        every = sectors // gcd(_CYLINDER, sectors)  # lcm(cylinder, block) in cylinders
        return f"begin it at sector {start}: it begins at a cylinder now, and only every {every}th cylinder is aligned"
    return f"begin it at sector {start}, or at a multiple of 2048 as parted does"


CHECK = Check(
    "alignment",
    "a partition, stacked disk or loop device of 16 MB or more begins inside a block of the disk (4 KB at least)",
    run,
    seconds=30,
)
