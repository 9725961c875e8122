"""One CPU that receives all packets, and cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dmods.base.regex import regex
from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Finding, Measured, Said
from drgnext.kernel.system.interrupts import interrupts
from drgnext.kernel.system.softnet import received
from drgnext.triage.facts import KernelFacts

_SHARE = 0.8  # of all packets
_DROPPED = 1000
_SQUEEZED = 10_000
_OFTEN = 0.01  # of the packets
_NAMED = 3
#: What drivers call the interrupts of received packets: virtio0-input.0, eth0-TxRx-3, ens5-Tx-Rx-1, eth0-rx-0.
_RECEIVES = regex(r"-(input|(tx-?)?rx)\b", re.IGNORECASE)


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the CPU that has four fifths of the packets, if it dropped some or its time was often over."""
    counts = received(facts.reader)
    total = sum(one.processed for one in counts)
    yield Measured(f"{total:,} packets, {sum(one.dropped for one in counts):,} dropped, on {len(counts)} CPUs")
    if len(counts) < 2 or not total:
        return
    one = max(counts, key=lambda each: each.processed)
    dropped = one.dropped >= _DROPPED
    squeezed = one.squeezed >= _SQUEEZED and one.squeezed >= _OFTEN * one.processed
    if one.processed < _SHARE * total or not (dropped or squeezed):
        return
    lost = f"dropped {one.dropped:,}, and " if one.dropped else ""
    names = _devices(facts, one.cpu)
    yield Finding(
        "one-cpu-receives",
        SERIOUS,
        CERTAIN if dropped else LIKELY,
        f"CPU {one.cpu} of {len(counts)} received {one.processed:,} of {total:,} packets, {lost}ran out of time "
        f"{one.squeezed:,} times{names}",
        "spread the packets: more queues on the device (ethtool -L), irqbalance, or RPS "
        "(/sys/class/net/DEVICE/queues/rx-0/rps_cpus)",
        next=("irq", "netdev"),
        weight=one.dropped + one.squeezed,
        alternative="the driver or a packet filter takes too long for each packet: profile that CPU",
    )


def _devices(facts: KernelFacts, cpu: int) -> str:
    """Return the names of interrupts for received packets that come mostly to this CPU."""
    busy = sorted(interrupts(facts.reader), key=lambda each: -sum(each.counts))
    here = [each.names[0] for each in busy if each.names and _RECEIVES.search(each.names[0]) and _on(each.counts, cpu)]
    return f"; its interrupts: {', '.join(here[:_NAMED])}" if here else ""


def _on(counts: list[int], cpu: int) -> bool:
    return cpu < len(counts) and sum(counts) > 0 and counts[cpu] >= _SHARE * sum(counts)


CHECK = Check(
    "packets",
    "one CPU of several received 80 % of the packets, and dropped 1,000 or ran out of time for 1 % of them",
    run,
    seconds=30,
)
