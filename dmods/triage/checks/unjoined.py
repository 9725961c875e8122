"""Threads that have ended and that nobody has joined: libc keeps their stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dmods.base.sizes import human_size
from dmods.finding import LIKELY, POSSIBLE, SERIOUS, WASTE, Check, Evidence, Finding, Measured, Said
from dmods.heap.unjoined import Unjoined, UnjoinedThreads, find_unjoined
from dmods.process.addresses import describe_code
from dmods.triage.facts import ProcessFacts

_MANY = 8  # threads that nobody can join
_MANY_KEPT = 16  # ... that can still be joined
_CACHE = 40 << 20  # bytes: glibc itself keeps so much for later threads (nptl/nptl-stack.c: stack_cache_maxsize)
_FOR_EACH = 4  # ended threads for each living one, where they can still be joined
_SHOWN = 3


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield one finding where such threads are many.

    Nobody can join a thread whose pthread_t is gone. Those that have one may wait for their turn: they are a finding
    only if they outnumber the living threads by far, and no thread is in pthread_join().
    """
    found = find_unjoined(facts.target)
    whole = not facts.target.missing  # else a pthread_t may be in the memory that a cut dump lacks
    lost = [each for each in found.threads if whole and not each.held]
    yield Measured(_threads(len(found.threads)))
    if _is_much(lost, _MANY):
        yield _finding(facts, found.threads, len(lost))
    elif _outnumber(facts, found):
        yield _finding(facts, found.threads, 0)


def _outnumber(facts: ProcessFacts, found: UnjoinedThreads) -> bool:
    """Return whether threads that could be joined are too many to wait for their turn."""
    outnumber = len(found.threads) >= _FOR_EACH * len(facts.target.threads())
    return outnumber and not found.joining and _is_much(found.threads, _MANY_KEPT)


def _is_much(some: Sequence[Unjoined], many: int) -> bool:
    return len(some) >= many or (len(some) > 1 and sum(each.size for each in some) > _CACHE)


def _threads(count: int) -> str:
    return f"{count:,} thread{'' if count == 1 else 's'} ended and not joined"


def _finding(facts: ProcessFacts, some: Sequence[Unjoined], lost: int) -> Finding:
    """Return the finding. ``lost`` of the threads cannot be joined any more."""
    size = sum(each.size for each in some)
    starts = Counter(each.thread.start for each in some if each.thread.start is not None)
    function, ran = "", ""
    if starts:
        start, count = starts.most_common(1)[0]
        function = describe_code(facts.target, start)
        ran = f"; {'all' if count == len(some) else f'{count:,}'} of them ran {function}"
    gone = f"; nothing has the pthread_t of {lost:,} of them any more" if lost else ""
    return Finding(
        "unjoined-threads",
        SERIOUS if lost else WASTE,
        LIKELY if lost else POSSIBLE,
        f"{len(some):,} threads have ended and were never joined: libc keeps {human_size(size)} of address space for "
        f"their stacks{ran}{gone}",
        "join these threads, or detach them (pthread_detach(3), PTHREAD_CREATE_DETACHED)",
        tuple(Evidence(each.thread.stack.tcb or 0, "the thread pointer of such a thread") for each in some[:_SHOWN]),
        ("maps -v",),
        weight=size,
        subject=f"threads of {function}" if function else "threads that were not joined",
        alternative="the program keeps their pthread_t in another form: no word of its memory has them"
        if lost
        else "the program will join them: their pthread_t are still there, but no thread waits for one to end",
    )


CHECK = Check(
    "unjoined",
    "nobody can join 8 threads that ended, or threads with stacks of 40 MB; or 16 ended, and four for each living one",
    run,
    seconds=30,
)
