"""The limits of a machine's TCP connections: the peer's window, the congestion window, or the send buffer.

`ss -tin` shows the same of a live machine. Read in net/ipv4/tcp.c (tcp_get_info()), from 5.10 to 7.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.sockets import Socket

if TYPE_CHECKING:
    from drgnext.kernel.system.reading import Reader

_SECOND = 1_000_000_000
_STATES = ("ESTAB", "CLOSE_WAIT")  # those that send
_RWND, _SNDBUF = 2, 3  # enum tcp_chrono
_SNDBUF_LOCK = 1  # SOCK_SNDBUF_LOCK: the program set SO_SNDBUF
_NO_RTT = 0xFFFFFFFF


class Flow(NamedTuple):
    """A connection that has sent. Times are ns, the rest bytes.

    ``busy`` is how long data was on its way or waited. ``by_peer`` is how much of it the peer's window was used up.
    ``window`` is the peer's window, ``largest`` the largest one it ever gave. ``congestion`` is the congestion window,
    ``buffer`` the limit of the send buffer. ``fixed``: the program chose it. ``unsent`` waits to be sent, ``flight`` is
    not acknowledged yet. ``rtt`` is the smoothed round trip, ``least_rtt`` the shortest of late. ``scaled``: both ends
    can give windows of more than 64 KB.
    """

    socket: Socket
    busy: int
    by_peer: int
    by_buffer: int
    window: int
    largest: int
    congestion: int
    buffer: int
    fixed: bool
    queued: int
    unsent: int
    flight: int
    rtt: int
    least_rtt: int
    scaled: bool


def flows(reader: Reader, sockets: Iterable[Socket]) -> Iterator[Flow]:
    """Yield what limits each connection that has a round trip time."""
    clocks = Clocks(reader)
    for one in sockets:
        if one.protocol in ("tcp", "tcp6") and one.state in _STATES:
            with reader.reading("connections"):
                found = _flow(reader, clocks, one)
                if found is not None:
                    yield found


def _flow(reader: Reader, clocks: Clocks, one: Socket) -> Optional[Flow]:
    tcp = reader.pointer("struct tcp_sock", one.address)
    sock = tcp.inet_conn.icsk_inet.sk
    rtt, least = int(tcp.srtt_us) >> 3, int(tcp.rtt_min.s[0].v)
    if not rtt:
        return None
    spent = [0, *(int(each) for each in tcp.chrono_stat)]  # in ticks; TCP_CHRONO_UNSPEC is not kept
    kind = int(tcp.chrono_type)
    if 0 < kind < len(spent):
        since = clocks.since_jiffies(int(tcp.chrono_start), 32)
        spent[kind] += (since or 0) * clocks.hz // _SECOND
    tick = _SECOND // clocks.hz
    following, acknowledged = int(tcp.snd_nxt), int(tcp.snd_una)
    return Flow(
        one,
        sum(spent) * tick,
        spent[_RWND] * tick if len(spent) > _RWND else 0,
        spent[_SNDBUF] * tick if len(spent) > _SNDBUF else 0,
        int(tcp.snd_wnd),
        int(tcp.max_window),
        int(tcp.snd_cwnd) * int(tcp.mss_cache),
        int(sock.sk_sndbuf),
        bool(int(sock.sk_userlocks) & _SNDBUF_LOCK),
        max(0, int(sock.sk_wmem_queued)),
        (int(tcp.write_seq) - following) & 0xFFFFFFFF,
        (following - acknowledged) & 0xFFFFFFFF,
        rtt * 1000,
        (rtt if least in (0, _NO_RTT) else least) * 1000,
        bool(int(tcp.rx_opt.wscale_ok)),
    )
