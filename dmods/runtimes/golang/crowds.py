"""Many goroutines that wait in one place: what a leak of goroutines looks like."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.sizes import human_size
from dmods.modules.golang.moduledata import go_module_at
from dmods.modules.golang.pclntab import Place
from dmods.runtimes.golang.clock import waited
from dmods.runtimes.golang.goroutines import LEAKED, WAITING, Goroutine, find_goroutines, shown
from dmods.runtimes.golang.unwind import shown_places, stack_of
from dmods.target import Target

MANY = 1000  # goroutines
SHARE = 0.5  # of all that are alive
_SAMPLE = 64  # goroutines of a crowd that are unwound
_FRAMES = 64
#: Many goroutines wait for these in a healthy program: for a peer, for a time, for work.
_PATIENT = ("IO wait", "sleep", "syscall")


@dataclass(frozen=True)
class Crowd:
    """Goroutines that wait for the same reason in the same place, made by the same statement.

    ``place`` and ``made`` are functions with their lines; "" where a function is not known. ``seconds`` is how long
    most of them have waited, at least; 0: not known. ``proven``: the runtime itself says that nothing can wake them.
    """

    reason: str
    place: str
    made: str
    goroutines: Sequence[Goroutine]
    stacks: int  # bytes
    seconds: int
    of: int  # all that are alive
    proven: bool

    @property
    def sentence(self) -> str:
        """Return what a ticket should say."""
        made = f", made in {self.made}" if self.made else ""
        since = f", most for at least {_duration(self.seconds)}" if self.seconds >= 60 else ""
        leaked = ", and nothing can wake them" if self.proven else ""
        count = f"{len(self.goroutines):,} of {self.of:,} goroutines"
        return (
            f"{count} wait in {self.place or 'an unknown function'} ({self.reason}){made}{since}{leaked}: their stacks "
            f"take {human_size(self.stacks)}"
        )


@cached
def find_crowds(target: Target) -> list[Crowd]:
    """Return the crowds of a Go program, the largest first: most of its goroutines, and very many; or leaked ones."""
    alive = [one for one in find_goroutines(target).all if not one.dead]
    waiting: dict[Hashable, list[Goroutine]] = defaultdict(list)
    for one in alive:
        if one.status == LEAKED or (one.status == WAITING and one.reason not in _PATIENT):
            waiting[one.status, one.reason, one.made_at, one.sched[1]].append(one)
    found: list[Crowd] = []
    for members in waiting.values():
        proven = members[0].status == LEAKED
        if proven or (len(members) >= MANY and len(members) >= SHARE * len(alive)):
            found.extend(_crowds(target, members, len(alive), proven))
    return sorted(found, key=lambda crowd: -len(crowd.goroutines))


def _crowds(target: Target, members: list[Goroutine], alive: int, proven: bool) -> Iterator[Crowd]:
    """Yield the crowd if nearly all of a sample wait in one place."""
    every = max(1, len(members) // _SAMPLE)
    places = Counter(_place(target, one) for one in members[::every])
    place, count = places.most_common(1)[0]
    if 10 * count < 9 * sum(places.values()) and not proven:
        return
    seconds = sorted(waited(target, one) for one in members)
    yield Crowd(
        members[0].reason or "leaked",
        place,
        _made(target, members[0].made_at),
        members,
        sum(max(0, one.stack[1] - one.stack[0]) for one in members),
        seconds[len(seconds) // 4],
        alive,
        proven,
    )


def _place(target: Target, one: Goroutine) -> str:
    """Return the innermost function that is not the runtime's, with its line."""
    for _frame, places in shown_places(stack_of(target, one, _FRAMES).frames):
        if places:
            return shown(places[0].function) + _line(places[0])
    return ""


def _made(target: Target, pc: Optional[int]) -> str:
    module = go_module_at(target, pc) if pc is not None else None
    function = module.table.at(pc) if module is not None and pc is not None else None
    if module is None or function is None or pc is None:
        return ""
    places = list(module.table.places(function, pc, False))
    return shown(function.name) + (_line(places[0]) if places else "")


def _line(place: Place) -> str:
    return f" [{place.file.rpartition('/')[2]}:{place.line}]" if place.file else ""


def _duration(seconds: int) -> str:
    """Return a time in the largest unit that makes it two or more: "3 hours"."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:,} {name}"
    return f"{seconds} seconds"
