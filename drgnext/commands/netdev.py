"""Network devices."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmods.base.dataclass import replace
from dmods.command import KERNEL, Command
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.netdevs import COUNTERS, devices
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "devices",
    "a network device",
    (
        Column("name", width=8),
        Column("state", width=5),
        Column("mtu", "count", width=5),
        Column("rx_packets", "count", title="RX PKTS", null="the kernel does not count it for this device"),
        Column("rx_bytes", "size", title="RX", null="the kernel does not count it for this device"),
        Column("tx_packets", "count", title="TX PKTS", null="the kernel does not count it for this device"),
        Column("tx_bytes", "size", title="TX", null="the kernel does not count it for this device"),
        Column("dropped", "count", title="DROPS", about="received and sent"),
        Column("queued", "count", about="packets that wait to be sent"),
        Column("addresses", title="ADDRESSES", about="all, with spaces between"),
        Column("ipv4", "texts", hidden=True),
        Column("index", "count", hidden=True, about="the number of the device"),
        Column("namespace", "count", title="NETNS", hidden=True, about="the inode of the network namespace"),
        Column("ipv6", "texts", hidden=True),
        Column("hardware", hidden=True),
        Column("rx_dropped", "count", hidden=True, null="the kernel does not count it for this device"),
        Column("tx_dropped", "count", hidden=True, null="the kernel does not count it for this device"),
        Column("rx_errors", "count", hidden=True, null="the kernel does not count it for this device"),
        Column("tx_errors", "count", hidden=True, null="the kernel does not count it for this device"),
        Column("complete", "flag", hidden=True, about="false where the driver keeps counters of its own"),
        Column("net_device", "address", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the network devices of all namespaces."""
    reader = Reader(kernel)
    rows = []
    unsure = []
    found = list(devices(reader))
    for one in found:
        rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, *errors = map(one.counters.get, COUNTERS)
        rows.append(
            (
                *(one.name, one.state, one.mtu, rx_packets, rx_bytes, tx_packets, tx_bytes),
                *(
                    (rx_dropped or 0) + (tx_dropped or 0),
                    one.queued,
                    " ".join([*one.addresses, *one.addresses6]),
                    one.addresses,
                ),
                *(
                    one.number,
                    one.namespace,
                    one.addresses6,
                    one.hardware,
                    rx_dropped,
                    tx_dropped,
                    *errors,
                    one.sure,
                    one.address,
                ),
            )
        )
        if not one.sure:
            unsure.append(one.name)
    count = len({one.namespace for one in found})
    report = Report([COLUMNS.table(rows, with_namespaces(COLUMNS.columns, count))])
    report.totals.update(devices=len(found), namespaces=count)
    report.notes += reader.notes
    if unsure:
        report.notes.append(
            f"the drivers of {', '.join(unsure)} count packets in structures of their own: these figures are too low"
        )
    return report


def with_namespaces(columns: Sequence[Column], count: int) -> list[Column]:
    """Return the columns. Where there is more than one network namespace, NETNS is shown."""
    return [replace(one, hidden=one.hidden and (one.name != "namespace" or count < 2)) for one in columns]


COMMAND = Command(
    name="netdev",
    summary="network devices: state, addresses, packets, bytes, drops and what waits to be sent",
    description="""The devices of all network namespaces are listed. NETNS is the number of a device's namespace, as
/proc/PID/ns/net has it; it is shown where there is more than one. The figures are those that /proc/net/dev shows, as
far as the kernel itself counts them: a note names the devices whose drivers keep their own counters.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("devices", "count"), Column("namespaces", "count")),
    requires=(KERNEL,),
    examples=(("netdev", "is the link up, and what was dropped?"),),
)
