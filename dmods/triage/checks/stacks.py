"""Stacks of threads that are nearly used up."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import LIKELY, SERIOUS, WASTE, Check, Evidence, Finding, Measured, Said
from dmods.heap.mapping_kinds import stack_claims
from dmods.process.threads import stacks_of
from dmods.triage.facts import ProcessFacts

_NEAR = 8192  # bytes above the guard
_SHARE = 20  # ... and a twentieth of the stack
_MANY = 1000  # threads


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield threads whose stack pointer is close to the guard, and a very large number of threads."""
    threads = facts.target.threads()
    died = facts.cause.signal is not None and facts.thread.tid
    near = []
    most = 0.0
    sizes = []
    writable = [(m.start, m.end) for m in facts.target.mappings() if "w" in m.flags]
    for stack in stacks_of(facts.target, list(facts.heap.owned)):
        if stack.sp is None or not stack.known or stack.tid == died or not stack.start <= stack.sp < stack.end:
            continue
        low = min((start for start, end in writable if start <= stack.sp < end), default=stack.start)
        bottom = max(stack.start, low)
        left, size = stack.sp - bottom, stack.end - bottom
        if stack.tcb is not None and stack.tid != facts.target.pid:
            sizes.append((size, size - left))
            most = max(most, 1 - left / size)
        if stack.tcb is not None and stack.tid != facts.target.pid and left < _NEAR and left * _SHARE < size:
            near.append((left, size, stack))
    yield _measured(len(threads), sizes, most)
    for left, size, stack in sorted(near, key=lambda each: each[0])[:3]:
        yield Finding(
            "stack-nearly-full",
            SERIOUS,
            LIKELY,
            f"thread {stack.tid} has {left} bytes left of its stack of {human_size(size)}",
            "give its thread a larger stack, or end its recursion",
            (Evidence(stack.sp or 0, "its stack pointer"),),
            (f"findstack {stack.tid}",),
            alternative="a large local array takes the room, and nothing calls deeper: findstack has the frames",
        )
    if len(threads) >= _MANY:
        size = sum(end - start for start, end, kind in stack_claims(facts.target, []) if kind == "thread stack")
        yield Finding(
            "many-threads",
            WASTE,
            LIKELY,
            f"{len(threads):,} threads have {human_size(size)} of stacks",
            "a pool bounds the number of threads; pthread_attr_setstacksize makes stacks smaller",
            next=("stacks",),
            weight=size,
            alternative="each of them works: stacks shows how many wait in the same place",
        )


def _measured(threads: int, sizes: list[tuple[int, int]], most: float) -> Measured:
    """Return how many threads there are, and what their stacks reserve and use. The first thread's has no fixed end."""
    count = "1 thread" if threads == 1 else f"{threads:,} threads"
    if not sizes:
        return Measured(count)
    reserved, used = (sum(each) for each in zip(*sizes))
    stacks = "1 stack" if len(sizes) == 1 else f"{len(sizes):,} stacks"
    return Measured(f"{count}; {human_size(used)} of {human_size(reserved)} of {stacks} used, {most:.0%} at most")


CHECK = Check(
    "stacks",
    "less than 8 KB and a twentieth of a thread's stack are left, or there are 1000 threads",
    run,
    needs=("cause", "heap"),
    seconds=60,
)
