"""Group goroutines that do the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.commands._goroutines import ShownFrame, frame_name, frames_to_show, stack_values
from dmods.process.shapes import STACK_COLUMNS
from dmods.process.unwind import MAX_TOTAL_FRAMES
from dmods.report import Column, Schema, Value
from dmods.runtimes.golang.clock import trace_state, waited
from dmods.runtimes.golang.goroutines import Goroutine, function_name, shown
from dmods.runtimes.golang.unwind import GoStack, stack_of
from dmods.target import Target

_MAX_STACKS = 10_000  # each takes a table
_MOST_NUMBERS = 12  # goroutines of a stack that text names

STACKS = Schema(
    "stacks",
    "goroutines in one state whose stacks show the same frames",
    (
        Column("number", "count", width=5, title="STACK", about="`stack_number` of the table goroutines"),
        Column("count", "count", width=5),
        Column("state"),
        Column("top"),
        Column("made_by", title="MADE BY"),
        Column(
            "waits",
            "count",
            title="WAITS (S)",
            null="none of them waits, or the clock is not known",
            about="whole seconds, of the one that waits longest",
        ),
        Column("goroutines", about="the numbers of the first ones"),
        Column("ids", "counts", hidden=True, about="their numbers"),
        *STACK_COLUMNS,
        Column("end", hidden=True, about="why there are no more frames; `complete`"),
    ),
)


class Wanted(NamedTuple):
    """The goroutines to show: those with this text in their state, and with a frame in this function.

    ``every``: the runtime's own frames, too. ``traced``: goroutines whose states the runtime's trace would print
    differently are in different groups.
    """

    limit: int
    state: str = ""
    caller: str = ""
    every: bool = False
    traced: bool = False


@dataclass
class Group:
    """Goroutines in one state whose stacks show the same frames."""

    stack: GoStack
    frames: list[ShownFrame]
    state: str
    members: list[Goroutine] = field(default_factory=list)


def grouped(target: Target, goroutines: Sequence[Goroutine], wanted: Wanted) -> tuple[list[Group], int]:
    """Return the goroutines by state and stack, and how many are in no group because there is too much."""
    groups: dict[Hashable, Group] = {}
    left_out, budget = 0, MAX_TOTAL_FRAMES
    with Progress("unwinding") as bar:
        for number, one in enumerate(goroutines):
            bar.update(number, len(goroutines))
            if wanted.state and wanted.state not in one.state:
                continue
            if budget <= 0:
                left_out += 1
                continue
            stack = stack_of(target, one, wanted.limit)
            budget -= len(stack.frames) + 1
            if wanted.caller and not _has(stack, wanted.caller):
                continue
            frames = frames_to_show(stack, wanted.every)
            state = trace_state(target, one) if wanted.traced else one.state
            key = (state, stack.end, tuple((frame.pc, frame.exact, len(places)) for frame, places in frames))
            if key in groups:
                groups[key].members.append(one)
            elif len(groups) < _MAX_STACKS:
                groups[key] = Group(stack, frames, state, [one])
            else:
                left_out += 1
    return list(groups.values()), left_out


def _has(stack: GoStack, name: str) -> bool:
    return any(name in (place.function, shown(place.function)) for frame in stack.frames for place in frame.places)


def group_row(target: Target, number: int, group: Group) -> tuple[Value, ...]:
    """Return the cells of STACKS."""
    ids = sorted(one.number for one in group.members)
    text = ",".join(str(each) for each in ids[:_MOST_NUMBERS])
    return (
        number,
        len(ids),
        group.state,
        _top(target, group.frames),
        function_name(target, group.members[0].made_at),
        max(waited(target, one) for one in group.members) or None,
        text + (",..." if len(ids) > _MOST_NUMBERS else ""),
        ids,
        partial(stack_values, target, group.frames),
        group.stack.truncated,
        group.stack.end or "complete",
    )


def _top(target: Target, frames: Sequence[ShownFrame]) -> str:
    if not frames:
        return "?"
    frame, places = frames[0]
    return shown(places[0].function) if places else frame_name(target, frame)
