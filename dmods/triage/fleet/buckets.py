"""Dumps that died alike, and what they have in common.

Two dumps are in one bucket if they have the exact or the loose key in common, or a chain of such dumps joins them: a
stripped file has the exact key of its unstripped build, and that one the loose key of another build.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.triage.fleet.store import Dump

_MOST = 5  # of each list that a bucket shows


@dataclass(frozen=True)
class Shared:
    """A finding that several dumps have: how many, and the middle of its bytes."""

    kind: str
    subject: Optional[str]
    dumps: int
    bytes: int


@dataclass(frozen=True)
class Bucket:
    """Dumps of one fault, the oldest first. ``representative`` is the one with the most that is known about it."""

    signature: str
    dumps: Sequence[Dump]
    representative: Dump
    shared: Sequence[Shared] = field(default=())

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """Return the hosts with the most dumps, and how many."""
        return Counter(dump.host for dump in self.dumps if dump.host).most_common(_MOST)

    @property
    def programs(self) -> list[tuple[str, int]]:
        """Return the programs, and how many dumps each has."""
        return Counter(dump.program or "?" for dump in self.dumps).most_common(_MOST)

    @property
    def versions(self) -> list[tuple[str, int]]:
        """Return the versions (what side files say, else build-ids), and how many dumps each has."""
        named = (dump.version or (dump.build_id or "")[:16] for dump in self.dumps)
        return Counter(name for name in named if name).most_common(_MOST)


Found = tuple[str, str, str, Optional[str], int]


def buckets(dumps: Iterable[Dump], findings: Iterable[Found]) -> list[Bucket]:
    """Return the buckets, the largest first. Dumps without a report are in none."""
    reported = [dump for dump in dumps if dump.reported]
    groups = _joined([[key for key in (dump.exact, dump.loose) if key] for dump in reported])
    by_dump: defaultdict[str, list[Found]] = defaultdict(list)
    for each in findings:
        by_dump[each[0]].append(each)
    made = [_bucket([reported[index] for index in group], by_dump) for group in groups]
    return sorted(made, key=lambda bucket: (-len(bucket.dumps), bucket.signature))


def shared(dumps: Sequence[Dump], by_dump: dict[str, list[Found]]) -> list[Shared]:
    """Return the findings that more than one of the dumps has and that did not kill them, the most common first."""
    weights: defaultdict[tuple[str, Optional[str]], dict[str, int]] = defaultdict(dict)
    for dump in dumps:
        for _key, kind, severity, subject, weight in by_dump.get(dump.id, ()):
            if severity != "fatal":
                weights[kind, subject][dump.id] = weight
    rows = [
        Shared(kind, subject, len(found), sorted(found.values())[len(found) // 2])
        for (kind, subject), found in weights.items()
        if len(found) > 1
    ]
    return sorted(rows, key=lambda row: (-row.dumps, -row.bytes, row.kind, row.subject or ""))[:_MOST]


def _bucket(dumps: Sequence[Dump], by_dump: dict[str, list[Found]]) -> Bucket:
    # A name with functions in it says more than one with offsets.
    best = max(dumps, key=lambda dump: (dump.loose is not None, len(by_dump.get(dump.id, ())), -dump.seen, dump.id))
    names = Counter(dump.signature or "?" for dump in dumps if (dump.loose is not None) == (best.loose is not None))
    name = min(names, key=lambda each: (-names[each], each))
    return Bucket(name, dumps, best, shared(dumps, by_dump))


def _joined(keys: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return groups of indices: two with a key in common are in one group. Those without a key stand alone."""
    parents = list(range(len(keys)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    first: dict[str, int] = {}
    for index, each in enumerate(keys):
        for key in each:
            one, other = root(index), root(first.setdefault(key, index))
            parents[max(one, other)] = min(one, other)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(len(keys)):
        groups[root(index)].append(index)
    return list(groups.values())
