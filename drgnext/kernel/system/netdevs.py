"""Network devices: their state, addresses, and what the kernel counted for all drivers."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.reading import Reader, number
from drgnext.kernel.system.socket_tables import namespaces

if TYPE_CHECKING:
    from drgn import Object

_IFF_UP = 1
_NO_CARRIER = 2  # a bit of net_device.state: enum netdev_state_t
_MOST_ADDRESSES = 1024
_MOST_QUEUES = 4096
#: enum netdev_stat_type, since 6.7; before, the function that a device reports with tells it.
_LSTATS, _TSTATS, _DSTATS = 1, 2, 3
_BY_FUNCTION = {
    "loopback_get_stats64": _LSTATS, "dev_lstats_read": _LSTATS, "dev_get_tstats64": _TSTATS,
    "ip_tunnel_get_stats64": _TSTATS, "veth_get_stats64": _LSTATS, "dummy_get_stats64": _LSTATS,
}  # fmt: skip
_CORE = ("rx_dropped", "tx_dropped")
COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", *_CORE, "rx_errors", "tx_errors")


class Device(NamedTuple):
    """A network device. ``counters`` has rx_packets, tx_bytes and the like (COUNTERS). ``sure`` is false
    if its driver has counters of its own, which are not among these.

    ``queued`` are the packets that wait in its queueing disciplines.
    """

    name: str
    number: int
    namespace: int
    state: str
    mtu: int
    hardware: str
    addresses: list[str]
    addresses6: list[str]
    counters: dict[str, int]
    queued: int
    sure: bool
    address: int


def devices(reader: Reader) -> Iterator[Device]:
    """Yield the devices of all network namespaces. ``namespace`` is the number of its inode."""
    for net in namespaces(reader):
        head = net.dev_base_head.address_of_().value_()
        for device in reader.members(head, "struct net_device", "dev_list", "network devices"):
            with reader.reading("network devices"):
                yield _describe(reader, device, int(net.ns.inum))


def _describe(reader: Reader, device: Object, namespace: int) -> Device:
    counted, sure = _counters(reader, device)
    flags = int(device.flags)
    carrier = not int(device.state) >> _NO_CARRIER & 1
    state = "down" if not flags & _IFF_UP else "up" if carrier else "no carrier"
    length = min(int(device.addr_len), 32)
    hardware = reader.memory.read(device.dev_addr.value_(), length).hex(":") if length else ""
    return Device(
        reader.string(device.member_("name"), 16), int(device.ifindex), namespace, state, int(device.mtu), hardware,
        _addresses(reader, device), _addresses6(reader, device), counted, _queued(reader, device), sure,
        device.value_(),
    )  # fmt: skip


def _addresses(reader: Reader, device: Object) -> list[str]:
    """Return the IPv4 addresses of a device as ADDRESS/PREFIX."""
    found: list[str] = []
    with reader.reading("addresses of network devices"):
        if not device.ip_ptr.value_():
            return found
        address = reader.pointer("struct in_device", device.ip_ptr.value_()).ifa_list
        while address.value_() and len(found) < _MOST_ADDRESSES:
            own = IPv4Address(int(address.ifa_local).to_bytes(4, "little"))
            found.append(f"{own}/{int(address.ifa_prefixlen)}")
            address = address.ifa_next
    return found


def _addresses6(reader: Reader, device: Object) -> list[str]:
    """Return the IPv6 addresses of a device as ADDRESS/PREFIX. A kernel without IPv6 has none."""
    found: list[str] = []
    if not reader.has("struct net_device", "ip6_ptr") or not reader.has("struct inet6_dev", "addr_list"):
        return found
    with reader.reading("addresses of network devices"):
        if not device.ip6_ptr.value_():
            return found
        head = reader.pointer("struct inet6_dev", device.ip6_ptr.value_()).addr_list.address_of_().value_()
        for address in reader.members(head, "struct inet6_ifaddr", "if_list", "addresses of network devices"):
            own = IPv6Address(bytes(address.addr.in6_u.u6_addr8.value_()))
            found.append(f"{own}/{int(address.prefix_len)}")
            if len(found) == _MOST_ADDRESSES:
                break
    return found


def _counters(reader: Reader, device: Object) -> tuple[dict[str, int], bool]:
    """Return the counters, and whether they are all that the driver has (dev_get_stats(), net/core/dev.c)."""
    counted = {name: int(device.stats.member_(name)) for name in COUNTERS}
    kind, sure = _kind(reader, device)
    if kind in (_LSTATS, _TSTATS, _DSTATS):
        counted = dict.fromkeys(COUNTERS, 0)
        _add_per_cpu(reader, device, kind, counted)
    _add_core(reader, device, counted)
    return counted, sure


def _kind(reader: Reader, device: Object) -> tuple[Optional[int], bool]:
    """Return which counters of each CPU the device has, and whether those, or the device's own, are all."""
    if reader.has("struct net_device", "pcpu_stat_type"):
        kind = int(device.pcpu_stat_type)
        if kind:
            return kind, True
    operations = device.netdev_ops
    reports = operations.ndo_get_stats64.value_() if operations.value_() else 0
    if not reports:
        return None, not (operations.value_() and operations.ndo_get_stats.value_())
    kind_by_name = _BY_FUNCTION.get(reader.function(reports))
    return kind_by_name, kind_by_name is not None


def _add_per_cpu(reader: Reader, device: Object, kind: int, counted: dict[str, int]) -> None:
    member = {_LSTATS: "lstats", _TSTATS: "tstats", _DSTATS: "dstats"}[kind]
    statistics = device.member_(member)
    if not statistics.value_():
        return
    for cpu in reader.cpus():
        own = reader.percpu(statistics, cpu)
        if kind == _LSTATS:  # what the device sends comes back to it, or goes nowhere
            packets, data = _word(reader, own.packets), _word(reader, own.bytes)
            both = ("rx", "tx") if reader.function(device.netdev_ops.value_()).startswith("loopback") else ("tx",)
            for way in both:
                counted[f"{way}_packets"] += packets
                counted[f"{way}_bytes"] += data
            continue
        for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes"):
            counted[name] += _word(reader, own.member_(name))
        if kind == _DSTATS:
            for name in ("rx", "tx"):
                dropped = f"{name}_drops"
                if own.type_.type.has_member(dropped):
                    counted[f"{name}_dropped"] += _word(reader, own.member_(dropped))


def _word(reader: Reader, counter: Object) -> int:
    """Return a u64, or a u64_stats_t, which is one in structures."""
    return reader.memory.word(counter.address_ or 0) or 0


def _add_core(reader: Reader, device: Object, counted: dict[str, int]) -> None:
    """Add what the core of the network stack dropped. Since 5.18 each CPU counts it."""
    if reader.has("struct net_device", "core_stats"):
        if device.core_stats.value_():
            for cpu in reader.cpus():
                own = reader.percpu(device.core_stats, cpu)
                for name in _CORE:
                    counted[name] += int(own.member_(name))
        return
    for name in _CORE:
        counted[name] += number(device.member_(name))


def _queued(reader: Reader, device: Object) -> int:
    """Return the packets in the queueing disciplines of the device's queues."""
    packets = 0
    with reader.reading("queues of network devices"):
        for each in range(min(int(device.num_tx_queues), _MOST_QUEUES)):
            discipline = device.member_("_tx")[each].qdisc
            if discipline.value_():
                packets += max(0, int(discipline.q.qlen))
    return packets
