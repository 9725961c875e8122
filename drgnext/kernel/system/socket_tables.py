"""The hash tables that sockets are in: TCP, UDP and unix sockets of all network namespaces."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_BUCKETS = 1 << 24
_UNIX_BUCKETS = 512  # UNIX_HASH_SIZE (include/net/af_unix.h)
_AT_ONCE = 1 << 16


def namespaces(reader: Reader) -> Iterator[Object]:
    """Yield every network namespace, a ``struct net *``."""
    head = reader.prog["net_namespace_list"].address_of_().value_()
    yield from reader.members(head, "struct net", "list", "network namespaces")


def socket_addresses(reader: Reader) -> Iterator[int]:
    """Yield the addresses of the sockets in the tables. Some structures are smaller than a ``struct sock``."""
    tables: set[int] = set()
    for net in namespaces(reader):
        with reader.reading("tables of TCP sockets"):
            yield from _of_tcp(reader, net, tables)
        with reader.reading("tables of UDP sockets"):
            yield from _of_udp(reader, net, tables)
        with reader.reading("tables of unix sockets"):
            yield from _of_unix(reader, net, tables)


def _of_tcp(reader: Reader, net: Object, tables: set[int]) -> Iterator[int]:
    """Yield the connections, then the listeners."""
    row = net.ipv4.tcp_death_row
    hashinfo = row.hashinfo if reader.has("struct inet_timewait_death_row", "hashinfo") else reader.prog["tcp_hashinfo"]
    if hashinfo.ehash.value_() in tables:
        return
    tables.add(hashinfo.ehash.value_())
    link = reader.offset("struct sock", "__sk_common.skc_nulls_node")
    size = reader.prog.type("struct inet_ehash_bucket").size or 8
    for first in _heads(reader, hashinfo.ehash.value_(), int(hashinfo.ehash_mask) + 1, size, 0):
        for node in reader.hashed(first, "TCP connections"):
            yield node - link
    if reader.has("struct inet_hashinfo", "listening_hash"):  # until 5.18
        first_bucket, count = hashinfo.listening_hash.address_of_().value_(), len(hashinfo.listening_hash)
    else:
        first_bucket, count = hashinfo.lhash2.value_(), int(hashinfo.lhash2_mask) + 1
    size = reader.prog.type("struct inet_listen_hashbucket").size or 16
    at = reader.offset("struct inet_listen_hashbucket", "nulls_head")
    for first in _heads(reader, first_bucket, count, size, at):
        for node in reader.hashed(first, "TCP listeners"):
            yield node - link


def _of_udp(reader: Reader, net: Object, tables: set[int]) -> Iterator[int]:
    """Yield the UDP sockets that have a port."""
    table = net.ipv4.udp_table if reader.has("struct netns_ipv4", "udp_table") else None
    table = table if table is not None and table.value_() else reader.prog["udp_table"].address_of_()
    if table.hash.value_() in tables:
        return
    tables.add(table.hash.value_())
    link = reader.offset("struct sock", "__sk_common.skc_node")
    size = reader.prog.type("struct udp_hslot").size or 16
    for first in _heads(reader, table.hash.value_(), int(table.mask) + 1, size, 0):
        for node in reader.hashed(first, "UDP sockets"):
            yield node - link


def _of_unix(reader: Reader, net: Object, tables: set[int]) -> Iterator[int]:
    """Yield the unix sockets. Since 6.0 each namespace has a table of its own."""
    if reader.has("struct netns_unix", "table"):
        buckets = net.unx.table.buckets.value_()
    else:
        buckets = reader.prog["unix_socket_table"].address_of_().value_()
    if buckets in tables:
        return
    tables.add(buckets)
    link = reader.offset("struct sock", "__sk_common.skc_node")
    for first in _heads(reader, buckets, _UNIX_BUCKETS, 8, 0):
        for node in reader.hashed(first, "unix sockets"):
            yield node - link


def _heads(reader: Reader, address: int, count: int, size: int, at: int) -> Iterator[int]:
    """Yield the first node of each bucket that is not empty. ``at`` is where in a bucket the pointer is."""
    if count > _MOST_BUCKETS:
        reader.note(f"the hash table at {address:#x} cannot have {count} buckets: it is left out")
        return
    for start in range(0, count, _AT_ONCE):
        wanted = min(_AT_ONCE, count - start) * size
        data = reader.prog.read(address + start * size, wanted)
        for offset in range(at, wanted, size):
            (first,) = struct.unpack_from("<Q", data, offset)
            if first and not first & 1:
                yield first
