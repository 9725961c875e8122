"""NFS: servers that do not answer, and slots that are too few."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.finding import CERTAIN, LIKELY, SERIOUS, WASTE, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import Clocks, age_text
from drgnext.kernel.system.nfs import Connection, Server, Session, missing, servers
from drgnext.triage.facts import KernelFacts

_LONG = 15  # seconds without an answer
_SECOND = 1_000_000_000
_NAMED = 4


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the servers that do not answer; of the others those with a queue before their slots."""
    why = missing(facts.reader)
    if why is not None:
        if not why:
            yield Measured("no NFS mount")
            return
        raise CannotCheck(why, "drgn -s nfs.ko -s sunrpc.ko, with their debug information")
    mounted = list(servers(facts.reader, Clocks(facts.reader)))
    yield Measured("1 server" if len(mounted) == 1 else f"{len(mounted)} servers")
    for server in mounted:
        found = _silent(server) or _narrow(server)
        if found is not None:
            yield found


def _silent(server: Server) -> Optional[Finding]:
    """Return the finding about a server with a request that it has not answered for long."""
    late = [one for one in server.connections if (one.age or 0) >= _LONG * _SECOND]
    if not late:
        return None
    oldest = max(one.age or 0 for one in late)
    sent, waiting = sum(one.sent for one in server.connections), _waiting(server)
    more = f"; {waiting:,} more wait for a slot" if waiting else ""
    down = " (not connected)" if not any(one.connected for one in server.connections) else ""
    return Finding(
        "nfs-no-answer",
        SERIOUS,
        CERTAIN,
        f"the NFS server {server.name}{down} has not answered {_requests(sent)}, the oldest for {age_text(oldest)}"
        f"{more}",
        "look at the server and at the network to it; a hard mount waits for ever",
        [_evidence(server, one) for one in server.connections[:_NAMED]],
        ("mounts", "ps -S D"),
        weight=oldest // _SECOND,
        alternative="the network drops the answers, and the server is well: look from another client",
        subject=server.name,
    )


def _narrow(server: Server) -> Optional[Finding]:
    """Return the finding about a server that answers, and has at least as many requests in a queue as it has slots."""
    session = server.session
    if session is not None and 0 < session.most <= session.waiting and session.used >= session.most:
        return _slots(
            server,
            session.most,
            session.waiting,
            Evidence(session.address, f"struct nfs4_session: {session.used} of {session.most} slots taken"),
            "raise the slots of a session: max_session_slots of the module nfs, and the server's own limit",
        )
    full = [one for one in server.connections if one.used >= one.most > 0]
    most, waiting = sum(one.most for one in server.connections), sum(one.waiting for one in full)
    if not full or waiting < most:
        return None
    several = "" if len(server.connections) > 1 else ", or mount with nconnect=4: all of it goes over one connection"
    return _slots(
        server,
        most,
        waiting,
        _evidence(server, full[0]),
        f"raise sunrpc.tcp_max_slot_table_entries{several}",
    )


def _slots(server: Server, most: int, waiting: int, evidence: Evidence, remedy: str) -> Finding:
    connections = "1 connection" if len(server.connections) == 1 else f"{len(server.connections)} connections"
    return Finding(
        "nfs-slots",
        WASTE,
        LIKELY,
        f"{_requests(waiting)} to the NFS server {server.name} wait for one of {most} slots, on {connections}",
        remedy,
        [evidence],
        ("mounts", "ps -S D"),
        weight=waiting,
        alternative="the server is slow, and more slots only let more wait there: compare its round trip with others",
        subject=server.name,
    )


def _waiting(server: Server) -> int:
    session: Optional[Session] = server.session
    return sum(one.waiting for one in server.connections) + (session.waiting if session is not None else 0)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def _evidence(server: Server, one: Connection) -> Evidence:
    age = f", the oldest request for {age_text(one.age)}" if one.age is not None else ""
    queue = f", {one.waiting} wait for one" if one.waiting else ""
    return Evidence(
        one.address,
        f"NFS {server.version} to {one.peer}: {one.used} of {one.most} slots taken{queue}{age}",
    )


CHECK = Check(
    "nfs",
    f"an NFS server has not answered for {_LONG} s; or as many requests wait for a slot as there are slots",
    run,
    seconds=30,
)
