"""Sockets whose peer has closed, and whose process did not: CLOSE_WAIT, by owner."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.sockets import Socket
from drgnext.triage.facts import KernelFacts

_STATE = "CLOSE_WAIT"
_MANY = 20  # sockets of one process: so many are a finding, however young
_OLD = 5_000_000_000  # ns: a program that reads its sockets sees the end at once
_SURE = 60_000_000_000
_LISTED = 5
_FIN = 1  # the end of the stream counts as a byte that nobody has read (net/ipv4/tcp_input.c, tcp_fin())


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield a finding for each process with many or old sockets in CLOSE_WAIT."""
    waiting = [one for one in facts.sockets if one.state == _STATE]
    yield Measured(f"{len(waiting):,} of {len(facts.sockets):,} sockets are in {_STATE}")
    by_owner: dict[tuple[int, str], list[Socket]] = {}
    for one in waiting:
        owners = {(owner.pid, owner.name) for owner in one.owners}
        by_owner.setdefault(min(owners) if owners else (0, one.held), []).append(one)
    for (pid, name), own in sorted(by_owner.items()):
        oldest = max(own, key=lambda one: one.idle or 0)
        if len(own) < _MANY and (oldest.idle or 0) < _OLD:
            continue
        unread = sum(max(0, (one.received or 0) - _FIN) for one in own)
        who = f"{name} ({pid}) has" if pid else f"no process has them open ({name}):"
        peers = sorted({one.remote for one in own})
        yield Finding(
            "close-wait",
            SERIOUS,
            CERTAIN if len(own) >= _MANY or (oldest.idle or 0) >= _SURE else LIKELY,
            f"{who} {_count(own)} that the peer has closed, {'the oldest ' if len(own) > 1 else ''}"
            f"{age_text(oldest.idle)} ago{f', with {unread:,} bytes unread' if unread else ''}; "
            f"peer{'s' if len(peers) > 1 else ''}: {', '.join(peers[:3])}{' and more' if len(peers) > 3 else ''}",
            "recv() returned 0 and nobody closed the socket: close it where the end of the stream is read",
            [_evidence(one) for one in own[:_LISTED]],
            (f"sockets {pid}" if pid else "sockets --unheld", f"files {pid}" if pid else "sockets"),
            weight=len(own),
            alternative="the process is only slow, and closes them later; their age is evidence against this",
        )


def _count(own: list[Socket]) -> str:
    return "1 connection" if len(own) == 1 else f"{len(own)} connections"


def _evidence(one: Socket) -> Evidence:
    fds = ", ".join(f"fd {owner.fd} of {owner.pid}" for owner in one.owners[:3])
    return Evidence(one.address, f"{one.local} to {one.remote}, Recv-Q {one.received or 0}, {fds or one.held}")


CHECK = Check(
    "close_wait",
    "20 sockets of a process in CLOSE_WAIT, or one for 5 s",
    run,
    needs=("sockets",),
    seconds=30,
)
