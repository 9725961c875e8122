"""The sockets of a kernel."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Value
from drgnext.commands.findstack import chosen
from drgnext.commands.netdev import with_namespaces
from drgnext.kernel.stacks.threads import kernel_threads
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.sockets import STATES, Socket, Sockets

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

OWNER = Schema(
    "owner", "a process that has the socket open", (Column("pid", "count"), Column("name"), Column("fd", "count"))
)
COLUMNS = Schema(
    "sockets",
    "a socket",
    (
        Column("protocol", title="PROTO"),
        Column("state", width=10),
        Column(
            "received",
            "count",
            title="RECV",
            width=5,
            null="the protocol does not count it",
            about="bytes not read; for a listener, connections that wait",
        ),
        Column(
            "sent",
            "count",
            title="SEND",
            width=5,
            null="the protocol does not count it",
            about="bytes not acknowledged; for a listener, connections that may wait",
        ),
        Column("idle", width=5, null="it is not known", about="in words"),
        Column("local"),
        Column("remote"),
        Column(
            "held_by", title="HELD BY", about="pid, name and file number of the first process, or why no process has it"
        ),
        Column("held", hidden=True, about="how it is held"),
        Column("owners", "objects", hidden=True, fields=OWNER),
        Column("idle_ns", "ns", hidden=True, null="it is not known"),
        Column("memory", "bytes", hidden=True, null="it is not known"),
        Column("inode", "count", hidden=True),
        Column("namespace", "count", title="NETNS", hidden=True, about="the inode of the network namespace"),
        Column("sock", "address", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the sockets, grouped by protocol, those with most unread first."""
    threads = kernel_threads(kernel)
    reader = Reader(kernel)
    wanted = {task.tgid for task in chosen(threads, args.task, "sockets -t")} if args.task else None
    found = Sockets(reader, threads).all()
    if wanted is not None:
        found = [one for one in found if any(owner.pid in wanted for owner in one.owners)]
    if args.unheld:
        found = [one for one in found if not one.owners]
    if args.state:
        found = [one for one in found if one.state == args.state]
    listeners = STATES.index("LISTEN")
    found.sort(key=lambda one: (one.protocol, one.state == STATES[listeners], -(one.received or 0), -(one.sent or 0)))
    rows = [_row(one) for one in found[: args.top]]
    spaces = len({one.namespace for one in found})
    report = Report(
        [COLUMNS.table(rows, with_namespaces(COLUMNS.columns, spaces), footer=[] if rows else ["no such socket"])]
    )
    states = Counter(f"{one.protocol} {one.state}" for one in found)
    report.totals.update(sockets=len(found), states=dict(states), held=dict(Counter(one.held for one in found)))
    report.notes += [*dict.fromkeys(threads.notes), *reader.notes]
    return report


def _row(one: Socket) -> tuple[Value, ...]:
    """Return the cells of COLUMNS."""
    by = one.held
    if one.owners:
        first = one.owners[0]
        by = f"{first.pid} {first.name}:{first.fd}"
        by += f" +{len(one.owners) - 1}" if len(one.owners) > 1 else ""
    return (
        *(one.protocol, one.state, one.received, one.sent, age_text(one.idle), one.local, one.remote, by, one.held),
        *([owner._asdict() for owner in one.owners], one.idle, one.memory, one.inode, one.namespace, one.address),
    )


def _state(text: str) -> str:
    """Return the name of a state, from any spelling. This is the ``type`` of an argument."""
    name = text.upper().replace("-", "_")
    name = {"ESTABLISHED": "ESTAB"}.get(name, name)
    if name not in STATES[1:]:
        raise argparse.ArgumentTypeError(f"{text!r} is no state: {' '.join(STATES[1:])}")
    return name


TOTALS = (
    Column("sockets", "count"),
    Column("states", "named_counts", about="by protocol and state"),
    Column("held", "named_counts", about="by `held`"),
)


COMMAND = Command(
    name="sockets",
    summary="sockets: state, unread and unsent bytes, addresses, and the process that holds each, or why nobody does",
    description="""RECV is the number of bytes that the program has not read, SEND of bytes that the peer has not
acknowledged. For a listener, RECV is the number of connections that wait to be accepted, SEND how many may wait. IDLE
is the time since data last came or went, for TCP. HELD BY is the pid, the name and the number of the file. A socket
that no process has open is one of these:
  in flight     only a message on a unix socket has it (SCM_RIGHTS)
  orphan        closed, but with data to send, or waiting for the peer
  not accepted  the program has not called accept() yet
  time wait     it only keeps its port
  handshake     the peer's last packet is missing
  kernel        the kernel's own
  no process    something else in the kernel has the open file (io_uring, BPF)
NETNS is the number of the network namespace; it is shown where the sockets are of more than one.
Sockets of other families (netlink, packet) are found only through the processes that have them open.""",
    run=run,
    tables=(COLUMNS,),
    totals=TOTALS,
    arguments=(
        Argument("task", metavar="TASK", nargs="?", help="only those of this process: address, pid or name"),
        Argument("-S", "--state", type=_state, metavar="STATE", help="only those in this state: CLOSE_WAIT, ..."),
        Argument("-u", "--unheld", action="store_true", help="only those that no process has open"),
        Argument("--top", metavar="N", type=positive, help="only the first N"),
    ),
    requires=(KERNEL,),
    examples=(
        ("sockets -S CLOSE_WAIT", "connections that the peer closed and the program did not"),
        ("sockets -u", "orphans, TIME_WAIT, sockets in flight"),
    ),
)
