"""The NFS servers that a kernel has mounted: their connections, slots, and requests without an answer.

Read in the sources of Linux 5.10 to 6.12, and tried with 7.2: fs/nfs/client.c, fs/nfs/nfs4session.h,
include/linux/nfs_fs_sb.h, net/sunrpc/xprt.c, net/sunrpc/xprtmultipath.c. nfs.ko and sunrpc.ko need their debug
information, and nfsv4.ko for the slots of a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.crash.modules import loaded
from drgnext.kernel.system.reading import number

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.ages import Clocks
    from drgnext.kernel.system.reading import Reader

_KINDS = ("nfs", "nfs4")
_NEEDED = ("nfs", "sunrpc")
_MOST_CONNECTIONS = 1 << 10  # of a server: nconnect is at most 16, trunking adds some
_MOST_REQUESTS = 1 << 16  # of a connection (RPC_MAX_SLOT_TABLE_LIMIT)
_CONNECTED = 1 << 1  # XPRT_CONNECTED (include/linux/sunrpc/xprt.h)
_ERRORS = (1 << 64) - 4096  # a pointer from here on is an error (IS_ERR)
_KERNEL = 1 << 63


class Connection(NamedTuple):
    """A connection to a server (``struct rpc_xprt``). A request needs one of its slots until it is answered.

    ``used`` of at most ``most`` slots are taken. ``waiting`` requests wait for a slot. ``sent`` requests have no
    answer, the oldest for ``age`` ns.
    """

    address: int
    peer: str
    connected: bool
    used: int
    most: int
    waiting: int
    sent: int
    age: Optional[int]


class Session(NamedTuple):
    """The slots of a session of NFSv4.1: what the server lets the client ask at once."""

    address: int
    used: int
    most: int
    waiting: int


class Server(NamedTuple):
    """A server that is mounted (``struct nfs_client``). ``version`` is as in the mount's options: "3", "4.1"."""

    name: str
    version: str
    nconnect: int
    mounts: int
    connections: list[Connection]
    session: Optional[Session]
    address: int


def missing(reader: Reader) -> Optional[str]:
    """Return why there is nothing to say of NFS, or None: it is not loaded, or without debug information."""
    if reader.has("struct nfs_server", "nfs_client") and reader.has("struct rpc_xprt", "max_reqs"):
        return None
    modules, _notes = loaded(reader.prog)
    here = [module.name for module in modules if module.name in _NEEDED]
    return f"the debug information of the module {here[0]} is not loaded" if "nfs" in here else ""


def servers(reader: Reader, clocks: Clocks) -> list[Server]:
    """Return the servers that are mounted."""
    found: dict[int, tuple[Object, int]] = {}
    for client in _clients(reader):
        known = found.get(client.value_(), (client, 0))
        found[client.value_()] = (client, known[1] + 1)
    made = []
    for client, mounts in found.values():
        with reader.reading("NFS servers"):
            made.append(_server(reader, clocks, client, mounts))
    return made


def _clients(reader: Reader) -> Iterator[Object]:
    """Yield the ``struct nfs_client`` of each superblock."""
    head = reader.prog["super_blocks"].address_of_().value_()
    for superblock in reader.members(head, "struct super_block", "s_list", "superblocks"):
        with reader.reading("superblocks"):
            if reader.text(superblock.s_type.name.value_(), 64) in _KINDS and _is_pointer(superblock.s_fs_info):
                client = reader.pointer("struct nfs_server", superblock.s_fs_info.value_()).nfs_client
                if _is_pointer(client):
                    yield client


def _server(reader: Reader, clocks: Clocks, client: Object, mounts: int) -> Server:
    version = int(client.rpc_ops.version) if _is_pointer(client.rpc_ops) else 0
    minor = int(client.cl_minorversion) if reader.has("struct nfs_client", "cl_minorversion") else 0
    several = int(client.cl_nconnect) if reader.has("struct nfs_client", "cl_nconnect") else 0
    session = None
    if version == 4 and reader.has("struct nfs_client", "cl_session") and _is_pointer(client.cl_session):
        session = _session(reader, client.cl_session.value_())
    connections = [
        _connection(reader, clocks, each)
        for each in (_connections(reader, client.cl_rpcclient) if _is_pointer(client.cl_rpcclient) else ())
    ]
    return Server(
        reader.text(client.cl_hostname.value_(), 256) or "?",
        f"{version}.{minor}" if version == 4 else str(version),
        max(1, several),
        mounts,
        connections,
        session,
        client.value_(),
    )


def _connections(reader: Reader, client: Object) -> Iterator[Object]:
    """Yield the ``struct rpc_xprt`` of a ``struct rpc_clnt``."""
    switch = client.cl_xpi.xpi_xpswitch
    if not _is_pointer(switch):
        yield client.cl_xprt
        return
    head = switch.xps_xprt_list.address_of_().value_()
    members = reader.members(head, "struct rpc_xprt", "xprt_switch", "connections to an NFS server")
    yield from islice(members, _MOST_CONNECTIONS)


def _connection(reader: Reader, clocks: Clocks, one: Object) -> Connection:
    free = reader.linked(one.free.address_of_().value_(), "free slots of a connection")
    slots = int(one.num_reqs)
    sent, ages = 0, []
    requests = reader.objects("struct rpc_rqst", "rq_recv", reader.tree(one.recv_queue, "requests to an NFS server"))
    for request in islice(requests, _MOST_REQUESTS):
        with reader.reading("requests to NFS servers"):
            sent += 1
            ages.append(clocks.since_monotonic(int(request.rq_xtime)))
    known = [age for age in ages if age is not None]
    return Connection(
        one.value_(),
        reader.string(one.address_strings[0], 128),  # RPC_DISPLAY_ADDR
        bool(int(one.state) & _CONNECTED),
        max(0, slots - sum(1 for _node in islice(free, _MOST_REQUESTS))),
        int(one.max_reqs),
        int(one.backlog.qlen),
        sent,
        max(known, default=None),
    )


def _session(reader: Reader, address: int) -> Optional[Session]:
    """Return the slots of a session, or None without the debug information of nfsv4.ko."""
    if not reader.has("struct nfs4_session", "fc_slot_table"):
        return None
    with reader.reading("sessions of NFS"):
        table = reader.pointer("struct nfs4_session", address).fc_slot_table
        used = sum(bin(number(word)).count("1") for word in table.used_slots)
        return Session(address, used, int(table.max_slots), int(table.slot_tbl_waitq.qlen))
    return None


def _is_pointer(value: Object) -> bool:
    """Return whether a pointer is one of the kernel's: neither NULL nor an error."""
    return bool(_KERNEL <= value.value_() < _ERRORS)
