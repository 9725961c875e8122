"""TCP connections whose window is too small for the time that a round trip takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, WASTE, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.flows import Flow, flows
from drgnext.triage.facts import KernelFacts

_SECOND = 1_000_000_000
_BUSY = _SECOND  # a connection that has sent for so long
_FAR = 5_000_000  # ns: on a local network a small window is enough
_SHARE = 0.5  # of that time
_SLOW = 12_500_000  # bytes/s: 100 Mbit/s
_SEVERAL = 3


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield a finding for each cause and process."""
    found: dict[tuple[str, int], list[Flow]] = {}
    count = 0
    for flow in flows(facts.reader, facts.sockets):
        count += 1
        kind = _cause(flow)
        if kind is not None:
            owner = min((owner.pid for owner in flow.socket.owners), default=0)
            found.setdefault((kind, owner), []).append(flow)
    yield Measured(f"{count:,} connections")
    for (kind, _pid), each in sorted(found.items()):
        yield _finding(kind, each)


def _cause(flow: Flow) -> Optional[str]:
    """Return what limits a connection that is far, busy and slow, or None."""
    if flow.busy < _BUSY or flow.least_rtt < _FAR:
        return None
    # A peer that does not read closes its window: then another size of buffers does not help.
    open_ = flow.window * 2 >= flow.largest
    if flow.by_peer >= _SHARE * flow.busy and open_ and _rate(flow.largest, flow) < _SLOW:
        return "peer-window"
    # The program's own limit: all that it may queue is on its way, and both windows have room.
    used = flow.queued >= flow.buffer and not flow.unsent and flow.flight
    room = flow.flight < min(flow.congestion, flow.window)
    if flow.fixed and used and room and _rate(max(flow.flight, flow.buffer), flow) < _SLOW:
        return "send-buffer"
    return None


def _rate(size: int, flow: Flow) -> float:
    """Return the bytes a second of a window of that size."""
    return size * _SECOND / flow.least_rtt


def _finding(kind: str, each: list[Flow]) -> Finding:
    slowest = max(each, key=lambda flow: flow.busy)
    peer = kind == "peer-window"
    size = slowest.largest if peer else max(slowest.flight, slowest.buffer)
    owners = slowest.socket.owners
    who = f"{owners[0].name} ({owners[0].pid})" if owners else "a connection that no process has open"
    many = f" on {len(each)} connections" if len(each) > 1 else ""
    limit = "the window of its peer" if peer else "its own SO_SNDBUF"
    share = f" {100 * slowest.by_peer // slowest.busy} % of the time" if peer else ""
    unscaled = peer and not slowest.scaled
    needed = int(_SLOW * slowest.least_rtt / _SECOND)
    if peer:
        remedy = f"raise net.ipv4.tcp_rmem or SO_RCVBUF on {slowest.socket.remote.rpartition(':')[0]}"
        remedy = "turn on net.ipv4.tcp_window_scaling at both ends" if unscaled else remedy
    else:
        remedy = "do not set SO_SNDBUF: the kernel sizes the buffer (net.ipv4.tcp_wmem)"
    return Finding(
        "window-small",
        WASTE,
        CERTAIN if peer else LIKELY,
        f"{who} is limited by {limit}{share}{many}: {human_size(size)} for a round trip of "
        f"{slowest.least_rtt / 1e6:.1f} ms are {human_size(int(_rate(size, slowest)))}/s at most",
        f"{remedy}; 100 Mbit/s need {human_size(needed)}",
        [_evidence(flow, peer) for flow in each[:_SEVERAL]],
        (f"sockets {owners[0].pid}" if owners else "sockets --unheld",),
        weight=slowest.busy // 1_000_000,
        alternative="the program at the other end reads slowly; evidence against this: its window did not close",
        subject=kind,
    )


def _evidence(flow: Flow, peer: bool) -> Evidence:
    one = flow.socket
    what = f"window {flow.window:,}" if peer else f"buffer {flow.buffer:,}, {flow.flight:,} on their way"
    return Evidence(one.address, f"{one.local} to {one.remote}, {what}, round trip {flow.rtt / 1e6:.1f} ms")


CHECK = Check(
    "windows",
    "a connection with a round trip of 5 ms or more was busy for 1 s, and for half of that time a window or buffer "
    "limited it to less than 100 Mbit/s",
    run,
    needs=("sockets",),
    seconds=30,
)
