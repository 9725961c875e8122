"""A profile out of a kernel's slab tracks: who allocated the objects that are in use (slub_debug=U)."""

from __future__ import annotations

from dmods.profile.model import Line, Location, Mapping, Profile, Raw, Sample
from dmods.records.callers import Place
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.objects import ALLOCATED_STATES, SlabObjects
from drgnext.kernel.slabs.tracks import SlabUser, Tracks
from drgnext.kernel.stacks.code import symbol_range

NAME = "the slab objects of the kernel"
LARGE = "kmalloc-large"
UNKNOWN = "[not recorded]"  # the stack of objects whose cache keeps no tracks
KERNEL = "vmlinux"


class _Locations:
    """Makes the locations of the frames. Each address is looked up once."""

    def __init__(self, kernel: Kernel, callers: KernelCallers) -> None:
        self._callers = callers
        self.all: list[Location] = []
        self._found: dict[Place, int] = {}
        self._unknown = -1
        self._text = symbol_range(kernel.prog, "_stext", "_etext") or (0, 0)
        self.mappings = [Mapping(*self._text, 0, KERNEL, "")] if self._text[1] else []

    def at(self, frame: Place) -> int:
        if frame not in self._found:
            inside = self._callers.inside(frame)
            name = self._callers.function_name(frame)
            lines = tuple(
                Line(line.function or name, line.function or name, line.path, line.line)
                for line in self._callers.lines_at(frame)
            )
            known = bool(self.mappings) and self._text[0] <= inside < self._text[1]
            self._found[frame] = len(self.all)
            self.all.append(Location(int(known), inside, _named(lines, name)))
        return self._found[frame]

    def unknown(self) -> int:
        if self._unknown < 0:
            self._unknown = len(self.all)
            self.all.append(Location(0, 0, (Line(UNKNOWN, UNKNOWN),)))
        return self._unknown


def _named(lines: tuple[Line, ...], name: str) -> tuple[Line, ...]:
    """Return the functions at a place. The outermost has the name of the symbol, with its module."""
    return (*lines[:-1], lines[-1]._replace(function=name, system_name=name)) if lines else (Line(name, name),)


def from_tracks(kernel: Kernel, slabs: SlabObjects, callers: KernelCallers) -> Profile:
    """Return who allocated the live slab objects. Raises UserError where the kernel kept no tracks.

    Objects of a cache that keeps none are one stack, UNKNOWN, so that the sum is that of all live objects. Innermost
    frames of the slab allocator itself are left out, unless ``callers`` was made with all frames.
    """
    tracks = Tracks(slabs)
    tracks.require()
    places = _Locations(kernel, callers)
    profile = Profile(source=NAME)
    for group in slabs.engine.groups(list(ALLOCATED_STATES), False):
        profile.samples.append(_sample(tracks.user(group), callers, places))
    profile.samples.sort(key=lambda sample: -sample.values[1])
    has_lines = any(line.line for location in places.all for line in location.lines)
    profile.locations = places.all
    profile.mappings = [
        mapping._replace(functions=True, files=has_lines, lines=has_lines, inlined=has_lines)
        for mapping in places.mappings
    ]
    profile.comments.append("values are those of whole objects; a cache's name is the label `cache`")
    profile.notes += [*slabs.notes, *tracks.notes]
    return profile


def _sample(user: SlabUser, callers: KernelCallers, places: _Locations) -> Sample:
    cache = user.cache.name if user.cache is not None else LARGE
    frames = user.stack.frames
    first = callers.first_outside(user.stack)
    stack = [places.at(frame) for frame in frames[first:]] or [places.unknown()]
    addresses = [address for address, _exact in frames[first:]]
    if addresses:
        addresses[0] = callers.inside(frames[first])
    size = user.count * user.size
    labels = (("bytes", user.size), ("cache", cache), ("allocator", "slab"))
    return Sample(tuple(stack), (user.count, size), labels, Raw(tuple(addresses), user.count, size))
