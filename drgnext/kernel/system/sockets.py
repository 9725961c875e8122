"""The sockets of a kernel: those that processes hold, and those that nobody holds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.descriptors import holders
from drgnext.kernel.system.reading import Reader, number
from drgnext.kernel.system.socket_tables import socket_addresses

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.stacks.tasks import Task
    from drgnext.kernel.stacks.threads import Threads

#: include/net/tcp_states.h, with ss's short word for the first. All families use these numbers.
STATES = (
    "", "ESTAB", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK",
    "LISTEN", "CLOSING", "NEW_SYN_RECV", "BOUND_INACTIVE",
)  # fmt: skip
_LISTEN, _TIME_WAIT, _NEW_SYN_RECV = 10, 6, 12
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM = 1
_SOCK_DEAD = 0  # a bit of sk_flags: enum sock_flags
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17
_MOST_OWNERS = 1000
_SCM_MAX_FD = 253


class Owner(NamedTuple):
    """A process that has a socket open."""

    pid: int
    name: str
    fd: int


@dataclass
class Socket:
    """A ``struct sock``, or one of the smaller structures for TIME_WAIT and half-open connections.

    ``held`` is "process", "in flight" (only a message on a unix socket has it), "orphan" (closed, with data or a
    handshake to go), "not accepted", "time wait", "handshake" or "kernel". ``received`` and ``sent`` are bytes that
    nobody has read and that the peer has not acknowledged; for a listener they are the connections that wait to be
    accepted, and how many may wait. ``idle`` is ns since data came or went (TCP only). ``memory`` is what the unread
    data takes. ``namespace`` is the number of its network namespace, 0 where the kernel has only one.
    """

    address: int
    protocol: str
    state: str
    local: str
    remote: str
    received: Optional[int] = None
    sent: Optional[int] = None
    idle: Optional[int] = None
    memory: Optional[int] = None
    inode: int = 0
    namespace: int = 0
    held: str = "process"
    owners: list[Owner] = field(default_factory=list)


class Sockets:
    """All sockets of one kernel that processes, messages or the tables of TCP, UDP and unix sockets lead to."""

    def __init__(self, reader: Reader, threads: Threads) -> None:
        self._reader = reader
        self._threads = threads
        self._clocks = Clocks(reader)
        self._operations = reader.prog["socket_file_ops"].address_of_().value_()
        self._inode_at = reader.offset("struct socket_alloc", "vfs_inode")

    def all(self) -> list[Socket]:
        """Return every socket. The order is that of processes, then that of the tables."""
        owners: dict[int, list[Owner]] = {}
        tasks = {task.address: task for task in self._threads.tasks.all()}
        things = (self._threads.task_object(task) for task in tasks.values())
        for thing, descriptor in holders(self._reader, things):
            with self._reader.reading("open files"):
                sock = self._of_file(descriptor.file)
                if sock:
                    task: Task = tasks[thing.value_()]
                    known = owners.setdefault(sock, [])
                    if len(known) < _MOST_OWNERS:
                        known.append(Owner(task.tgid, task.comm, descriptor.number))
        addresses = dict.fromkeys([*owners, *socket_addresses(self._reader)])
        flying: dict[int, None] = {}
        found = []
        pending = list(addresses)
        while pending:
            for address in pending:
                with self._reader.reading("sockets"):
                    made = self._describe(address)
                    made.owners = owners.get(address, [])
                    found.append(made)
                    for other in self._carried(address):
                        flying.setdefault(other)
            pending = [address for address in flying if address not in addresses]
            addresses.update(dict.fromkeys(pending))
        for one in found:
            if not one.owners:
                with self._reader.reading("sockets"):
                    one.held = "in flight" if one.address in flying else self._unheld(one)
        return found

    def _of_file(self, file: Object) -> int:
        """Return the address of the ``struct sock`` of a file, 0 if the file is not a socket."""
        if file.f_op.value_() != self._operations:
            return 0
        return int(self._reader.pointer("struct socket", file.private_data.value_()).sk.value_())

    def _describe(self, address: int) -> Socket:
        """Return what is known of a socket, without its owners."""
        sock = self._reader.pointer("struct sock", address)
        common = sock.member_("__sk_common")
        family, state = int(common.skc_family), int(common.skc_state)
        protocol = self._protocol(common, family)
        name = STATES[state] if 0 < state < len(STATES) else str(state)
        made = Socket(address, protocol, name, *self._addresses(address, common, family))
        made.namespace = self._namespace(common)
        if state == _TIME_WAIT:
            substate = int(self._reader.pointer("struct inet_timewait_sock", address).tw_substate)
            made.state, made.held = STATES[substate] if 0 < substate < len(STATES) else name, "time wait"
            return made
        if state == _NEW_SYN_RECV:  # struct request_sock
            made.held = "handshake"
            return made
        made.inode = self._inode(sock.sk_socket.value_())
        if family in (_AF_INET, _AF_INET6) and int(sock.sk_protocol) == _IPPROTO_TCP:
            self._queues_of_tcp(made, sock, state)
        elif state == _LISTEN:
            made.received, made.sent = int(sock.sk_ack_backlog), int(sock.sk_max_ack_backlog)
        else:
            self._queues(made, sock, family)
        return made

    def _namespace(self, common: Object) -> int:
        """Return the number of a socket's network namespace, 0 where the kernel has only one (CONFIG_NET_NS)."""
        if not self._reader.has_member(common.skc_net, "net"):
            return 0
        net = common.skc_net.net
        return int(net.ns.inum) if net.value_() else 0

    def _protocol(self, common: Object, family: int) -> str:
        """Return the name of a protocol: tcp, tcp6, udp, unix, netlink, packet, ..."""
        name = self._reader.string(common.skc_prot.name, 32).lower()
        if family == _AF_UNIX:
            return "unix"
        return name.replace("v6", "6") or f"family {family}"

    def _addresses(self, address: int, common: Object, family: int) -> tuple[str, str]:
        """Return the local and the remote address as text."""
        if family == _AF_UNIX:
            return self._names(address)
        if family not in (_AF_INET, _AF_INET6):
            return "", ""
        here, there = int(common.skc_num), _swapped(int(common.skc_dport))
        if family == _AF_INET:
            local = IPv4Address(struct.pack("<I", int(common.skc_rcv_saddr)))
            remote = IPv4Address(struct.pack("<I", int(common.skc_daddr)))
            return f"{local}:{here}", f"{remote}:{there}"
        six = [bytes(part.in6_u.u6_addr8.value_()) for part in (common.skc_v6_rcv_saddr, common.skc_v6_daddr)]
        return f"[{IPv6Address(six[0])}]:{here}", f"[{IPv6Address(six[1])}]:{there}"

    def _names(self, address: int) -> tuple[str, str]:
        """Return the name of a unix socket ("@" stands for an abstract one's zero), and the inode of its peer."""
        own = self._reader.pointer("struct unix_sock", address)
        name = ""
        if own.addr.value_():
            length = min(int(own.addr.len), 110) - 2  # sizeof(struct sockaddr_un), and its family
            path = self._reader.memory.read(own.addr.name.address_of_().value_() + 2, max(0, length))
            name = ("@" + path[1:].decode(errors="backslashreplace")) if path[:1] == b"\0" else ""
            name = name or path.partition(b"\0")[0].decode(errors="backslashreplace")
        peer = ""
        with self._reader.reading("peers of sockets"):
            if own.peer.value_():
                inode = self._inode(own.peer.sk_socket.value_())
                peer = f"[{inode}]" if inode else "closed"
        return name, peer

    def _inode(self, socket: int) -> int:
        """Return the number of the inode of a ``struct socket`` (SOCK_INODE())."""
        return int(self._reader.pointer("struct inode", socket + self._inode_at).i_ino) if socket else 0

    def _queues_of_tcp(self, made: Socket, sock: Object, state: int) -> None:
        """Fill in what /proc/net/tcp shows as rx_queue and tx_queue, and the idle time."""
        if state == _LISTEN:
            made.received, made.sent = int(sock.sk_ack_backlog), int(sock.sk_max_ack_backlog)
            return
        tcp = self._reader.pointer("struct tcp_sock", made.address)
        made.received = _difference(int(tcp.rcv_nxt), int(tcp.copied_seq))
        made.sent = _difference(int(tcp.write_seq), int(tcp.snd_una))
        made.memory = number(sock.sk_backlog.rmem_alloc)
        with self._reader.reading("times of sockets"):
            moments = int(tcp.inet_conn.icsk_ack.lrcvtime), int(tcp.lsndtime)
            ages = [self._clocks.since_jiffies(moment, 32) for moment in moments if moment]
            made.idle = min((age for age in ages if age is not None), default=None)

    def _queues(self, made: Socket, sock: Object, family: int) -> None:
        """Fill in the unread bytes of another socket: those of its queue of packets."""
        heads = [sock.sk_receive_queue]
        if int(sock.sk_protocol) == _IPPROTO_UDP and family in (_AF_INET, _AF_INET6):
            heads.append(self._reader.pointer("struct udp_sock", made.address).reader_queue)
        received = 0
        for head in heads:
            for packet in self._reader.linked(head.address_of_().value_(), "packets of a socket"):
                received += int(self._reader.pointer("struct sk_buff", packet).len)
                if family == _AF_UNIX and int(sock.sk_type) == _SOCK_STREAM:
                    received -= int(self._parameters(packet).consumed)
        # One reference is the socket's own (sk_wmem_alloc_get()). The rest is memory, as in /proc/net/udp.
        made.received, made.sent = max(0, received), max(0, number(sock.sk_wmem_alloc.refs) - 1)
        made.memory = number(sock.sk_backlog.rmem_alloc)

    def _parameters(self, packet: int) -> Object:
        """Return UNIXCB() of a packet of a unix socket."""
        return self._reader.pointer("struct unix_skb_parms", packet + self._reader.offset("struct sk_buff", "cb"))

    def _carried(self, address: int) -> Iterator[int]:
        """Yield the sockets that unread messages of a unix socket carry (SCM_RIGHTS)."""
        sock = self._reader.pointer("struct sock", address)
        if int(sock.member_("__sk_common").skc_family) != _AF_UNIX:
            return
        head = sock.sk_receive_queue.address_of_().value_()
        for packet in self._reader.linked(head, "packets of a socket"):
            carried = self._parameters(packet).fp
            if carried.value_() >> 63:
                for each in range(min(int(carried.count), _SCM_MAX_FD)):
                    with self._reader.reading("files in flight"):
                        found = self._of_file(carried.fp[each])
                        if found:
                            yield found

    def _unheld(self, one: Socket) -> str:
        """Return why no process has a socket open."""
        if one.held != "process":
            return one.held
        sock = self._reader.pointer("struct sock", one.address)
        if sock.sk_socket.value_():
            return "kernel" if not sock.sk_socket.file.value_() else "no process"
        flags = int(sock.member_("__sk_common").skc_flags)
        return "orphan" if flags >> _SOCK_DEAD & 1 else "not accepted"


def _swapped(port: int) -> int:
    """Return a port from the network's byte order."""
    return (port >> 8 | port << 8) & 0xFFFF


def _difference(later: int, earlier: int) -> int:
    """Return the distance of two sequence numbers, 0 if it is negative."""
    distance = (later - earlier) & 0xFFFFFFFF
    return distance if distance < 1 << 31 else 0
