"""A profile as the user asked to see it: one type of value, some of the samples, stacks of names."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.errors import UsageError
from dmods.profile.model import BASE, SPACE, UNKNOWN, Location, Profile, Sample

FUNCTION, FILE, LIBRARY, THREAD, TYPE, OWNER = "function", "file", "library", "thread", "type", "owner"
#: What --by takes. The last three are labels of samples.
BY = (FUNCTION, FILE, LIBRARY, THREAD, TYPE, OWNER)
_LABELS = (THREAD, TYPE, OWNER)
_UNKNOWN = "<unknown>"  # pprof's name of a location without a function or a mapping


@dataclass
class Node:
    """A function (or file, library, label): what its own samples hold, and all samples that it is in.

    A sample counts once in ``cum``, however often the function is on its stack.
    """

    flat: int = 0
    cum: int = 0


@dataclass
class Graph:
    """The nodes by name, and what percentages are of: the profile before filters."""

    nodes: dict[str, Node] = field(default_factory=dict)
    total: int = 0

    def ordered(self) -> list[tuple[str, Node]]:
        """Return the nodes as pprof orders them: the largest flat value first."""
        return sorted(self.nodes.items(), key=lambda item: (-abs(item[1].flat), item[0], -abs(item[1].cum)))


class Both(NamedTuple):
    """The value of a stack in the base, and now."""

    old: int
    new: int


@dataclass(frozen=True)
class View:
    """The samples of a profile that the user asked for, with one value each."""

    profile: Profile
    sample: str = SPACE
    focus: Optional[re.Pattern[str]] = None
    ignore: Optional[re.Pattern[str]] = None
    by: str = FUNCTION

    def __post_init__(self) -> None:
        if self.profile.type_index(self.sample) is None:
            have = ", ".join(kind for kind, _unit in self.profile.types)
            why = "frees were not counted, so the sum of all allocations is not known"
            raise UsageError(
                f"{self.profile.source} has no {self.sample}: {why}", f"--sample takes {have} for this source"
            )

    @property
    def index(self) -> int:
        """Return the place of the value among a sample's values."""
        return self.profile.type_index(self.sample) or 0

    @property
    def unit(self) -> str:
        """Return "bytes" or "count"."""
        return self.profile.types[self.index][1]

    @property
    def compared(self) -> bool:
        """Return whether the profile holds samples of a base."""
        return any(is_base(sample) for sample in self.profile.samples)

    @property
    def total(self) -> int:
        """Return what percentages are of, as pprof has it: all samples before filters, or all of the base."""
        index = self.index
        base = sum(abs(sample.values[index]) for sample in self.profile.samples if is_base(sample))
        return base or sum(abs(sample.values[index]) for sample in self.profile.samples)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples that pass the filters.

        A filter matches a name, a source file or the path of a mapping anywhere in the stack, as in pprof.
        """
        focused = self._matching(self.focus)
        ignored = self._matching(self.ignore)
        for sample in self.profile.samples:
            if focused is not None and not any(focused[place] for place in sample.stack):
                continue
            if ignored is not None and any(ignored[place] for place in sample.stack):
                continue
            yield sample

    def _matching(self, pattern: Optional[re.Pattern[str]]) -> Optional[list[bool]]:
        if pattern is None:
            return None
        return [any(map(pattern.search, self._texts(one))) for one in self.profile.locations]

    def _texts(self, location: Location) -> Iterator[str]:
        for line in location.lines:
            yield line.function
            yield line.file
        if location.mapping:
            yield self.profile.mappings[location.mapping - 1].path

    def stacks(self, rooted: bool = False) -> Iterator[tuple[tuple[str, ...], int, bool]]:
        """Yield (names, leaf first, value, whether it is the base's) of the samples. A value of the base is negative.

        By a label, the stack is the label alone. With `rooted`, the functions follow below the label: so pictures have
        it.
        """
        index, names = self.index, self.names()
        for sample in self.samples():
            yield self.stack(sample, names, rooted), sample.values[index], is_base(sample)

    def names(self) -> list[tuple[str, ...]]:
        """Return the names of each location of the profile, innermost first."""
        return [tuple(self._names(one)) for one in self.profile.locations]

    def stack(self, sample: Sample, names: Sequence[tuple[str, ...]], rooted: bool) -> tuple[str, ...]:
        """Return the names of a sample, leaf first, as ``stacks`` yields them. ``names`` are those of ``names()``."""
        stack = tuple(name for place in sample.stack for name in names[place])
        if self.by in _LABELS:
            label = sample.label(self.by)
            stack = (*stack, label) if rooted else (label,)
        elif self.by != FUNCTION:
            # Frames of one file that follow one another are one step.
            stack = tuple(name for place, name in enumerate(stack) if place == 0 or stack[place - 1] != name)
        return stack or (UNKNOWN,)

    def _names(self, location: Location) -> Iterator[str]:
        mapping = self.profile.mappings[location.mapping - 1] if location.mapping else None
        library = os.path.basename(mapping.path) if mapping is not None else ""
        if self.by == LIBRARY:
            yield library or (location.lines[0].function if location.lines and not location.address else _UNKNOWN)
            return
        if not location.lines:
            yield f"[{library}]" if library else _UNKNOWN
        for line in location.lines:
            if self.by == FILE:
                yield line.file or library or line.function
            else:
                yield line.function

    def graph(self) -> Graph:
        """Return the nodes. Recursion counts once in cum."""
        graph = Graph(total=self.total)
        for stack, value, _base in self.stacks():
            seen: set[str] = set()
            graph.nodes.setdefault(stack[0], Node()).flat += value
            for name in stack:
                if name not in seen:
                    seen.add(name)
                    graph.nodes.setdefault(name, Node()).cum += value
        # In a difference, what has not changed is no row, as in pprof.
        graph.nodes = {name: node for name, node in graph.nodes.items() if node.flat or node.cum}
        return graph

    def edges(self, of: Collection[str]) -> dict[tuple[str, str], int]:
        """Return the value of each edge from caller to callee, of these nodes only. Recursion counts once."""
        found: dict[tuple[str, str], int] = {}
        for stack, value, _base in self.stacks():
            steps = {(caller, callee) for callee, caller in zip(stack, stack[1:]) if caller in of or callee in of}
            for edge in steps:
                found[edge] = found.get(edge, 0) + value
        return {edge: value for edge, value in found.items() if value}

    def paths(self) -> dict[tuple[str, ...], Both]:
        """Return the value of each stack of names, root first, in the base and now."""
        found: dict[tuple[str, ...], Both] = {}
        for stack, value, base in self.stacks(rooted=True):
            path = stack[::-1]
            old, new = found.get(path, (0, 0))
            found[path] = Both(old - value, new) if base else Both(old, new + value)
        return found


def is_base(sample: Sample) -> bool:
    """Return whether the sample was subtracted: it belongs to the base."""
    return (BASE, "true") in sample.labels


def difference(now: Profile, base: Profile) -> Profile:
    """Return a profile with the samples of both. Those of the base are negative and say so in a label.

    `go tool pprof -diff_base` makes the same profile. Raises UsageError where the types of values differ.
    """
    if list(now.types) != list(base.types):
        have = ", ".join(kind for kind, _unit in base.types)
        raise UsageError("the base has other types of values", f"it has {have}: give a profile of the same source")
    both = Profile(now.types, list(now.samples), list(now.locations), list(now.mappings))
    both.comments, both.notes, both.mapped = list(now.comments), list(now.notes), now.mapped
    both.period, both.source, both.time = now.period, now.source, now.time
    both.jemalloc, both.unbiased = now.jemalloc, now.unbiased
    both.notes.extend(f"base: {note}" for note in base.notes if note not in now.notes)
    first, mapped = len(both.locations), len(both.mappings)
    both.mappings.extend(base.mappings)
    both.locations.extend(one._replace(mapping=one.mapping + mapped if one.mapping else 0) for one in base.locations)
    for sample in base.samples:
        stack = tuple(first + place for place in sample.stack)
        labels = tuple(label for label in sample.labels if label[0] != BASE)
        values = tuple(-value for value in sample.values)
        both.samples.append(Sample(stack, values, (*labels, (BASE, "true"))))
    if is_already(base) or is_already(now):
        raise UsageError("a difference cannot be a base", "give a profile that was written without --base")
    return both


def is_already(profile: Profile) -> bool:
    """Return whether the profile is itself a difference."""
    return any(is_base(sample) for sample in profile.samples)
