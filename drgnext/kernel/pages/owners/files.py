"""Pages of open files: rings of perf, io_uring and packet sockets, data of pipes and sockets."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from drgnext.kernel.pages.owners.claims import MOST_PAGES, Claims
from drgnext.kernel.pages.owners.structures import Structures, address_of

_MOST_FILES = 1 << 20  # of one process, and of all of them together
_AF_PACKET, _IPPROTO_TCP = 17, 6  # linux/socket.h, linux/in.h


def find(read: Structures, claims: Claims) -> set[str]:
    """Claim the pages of open files. Return what this kernel has in another form."""
    return OpenFiles(read, claims).found()


class OpenFiles:
    """The open files of one kernel."""

    def __init__(self, read: Structures, claims: Claims) -> None:
        from drgn import sizeof

        self._read = read
        self._claims = claims
        fragments = read.prog.type("struct skb_shared_info").member("frags").type
        self._most_fragments = fragments.length or 17  # MAX_SKB_FRAGS
        self._fragment = sizeof(fragments) // self._most_fragments

    def found(self) -> set[str]:
        """Claim what all files have. Return what this kernel has in another form."""
        readers = self._readers()
        other_forms = set()
        for file in self._files() if readers else ():
            read = readers.get(self._read.word(file, "struct file.f_op"))
            try:
                if read is not None:
                    read(self._read.word(file, "struct file.private_data"))
            except LookupError as error:
                other_forms.add(str(error))
        return other_forms

    def _readers(self) -> dict[int, Callable[[int], None]]:
        """Return the function that reads a file's private data, by the file's operations."""
        named = {
            "perf_fops": self._perf,
            "io_uring_fops": self._io_uring,
            "pipefifo_fops": self._pipe,
            "pipeanon_fops": self._pipe,  # since 6.15 apart from those of FIFOs
            "socket_file_ops": self._socket,
        }
        found = ((address_of(self._read.prog, name), read) for name, read in named.items())
        return {address: read for address, read in found if address is not None}

    def _files(self) -> Iterator[int]:
        """Yield each struct file that a process has open, once."""
        seen: set[int] = set()
        tables: set[int] = set()
        for task in self._read.processes():
            files = self._read.word(task, "struct task_struct.files")
            if not files or files in tables:
                continue
            tables.add(files)
            table = self._read.word(files, "struct files_struct.fdt")
            count = self._read.number(table, "struct fdtable.max_fds")
            if not 0 < count <= _MOST_FILES:
                continue
            data = self._read.memory.read(self._read.word(table, "struct fdtable.fd"), 8 * count)
            for file in struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]):
                if file and file not in seen:
                    seen.add(file)
                    yield file
            if len(seen) > _MOST_FILES:
                return

    # Rings.

    def _perf(self, event: int) -> None:
        """Add the ring of a struct perf_event. Several events may share one."""
        ring = self._read.word(event, "struct perf_event.rb")
        if not self._read.new(ring):
            return
        self._claims.address("ring", self._read.word(ring, "struct perf_buffer.user_page"))
        count = self._read.number(ring, "struct perf_buffer.nr_pages")
        self._claims.each_address("ring", ring + self._read.offset("struct perf_buffer.data_pages"), count)
        count = self._read.number(ring, "struct perf_buffer.aux_nr_pages")
        self._claims.each_address("ring", self._read.word(ring, "struct perf_buffer.aux_pages"), count)

    def _io_uring(self, context: int) -> None:
        """Add the rings of a struct io_ring_ctx.

        Since 6.14 they are regions, with an array of pages. Before, they are blocks of pages; since 6.10 also arrays.
        """
        if not self._read.new(context):
            return
        name = "struct io_ring_ctx"
        if self._read.has(f"{name}.ring_region"):
            for region in ("ring_region", "sq_region"):
                at = context + self._read.offset(f"{name}.{region}")
                count = self._read.number(at, "struct io_mapped_region.nr_pages")
                self._claims.each_page("ring", self._read.word(at, "struct io_mapped_region.pages"), count)
            return
        for area, pages, length in (("rings", "ring_pages", "n_ring_pages"), ("sq_sqes", "sqe_pages", "n_sqe_pages")):
            self._claims.address("ring", self._read.word(context, f"{name}.{area}"))
            if self._read.has(f"{name}.{pages}"):
                number = self._read.number(context, f"{name}.{length}") & 0xFFFF
                self._claims.each_page("ring", self._read.word(context, f"{name}.{pages}"), number)

    def _packet(self, socket: int) -> None:
        """Add the rings of a struct packet_sock."""
        if not self._read.has("struct packet_sock.rx_ring"):
            return  # af_packet is a module without debug information
        for ring in ("rx_ring", "tx_ring"):
            at = socket + self._read.offset(f"struct packet_sock.{ring}")
            blocks = self._read.word(at, "struct packet_ring_buffer.pg_vec")
            count = self._read.number(at, "struct packet_ring_buffer.pg_vec_len")
            if blocks and self._read.new(blocks):
                self._claims.each_address("ring", blocks, count)  # struct pgv is one pointer

    # Pipes and sockets.

    def _pipe(self, pipe: int) -> None:
        """Add the data of a struct pipe_inode_info, and the pages that it keeps for later."""
        if not self._read.new(pipe):
            return
        name = "struct pipe_inode_info"
        count = self._read.number(
            pipe, f"{name}.ring_size" if self._read.has(f"{name}.ring_size") else f"{name}.buffers"
        )
        buffers, size = self._read.word(pipe, f"{name}.bufs"), self._read.prog.type("struct pipe_buffer").size or 0
        operations = int(self._read.prog["anon_pipe_buf_ops"].address_of_().value_())
        for at in range(buffers, buffers + size * min(max(count, 0), MOST_PAGES), size or 1):
            self._claims.left -= 1
            if self._claims.left <= 0:
                return
            if self._read.word(at, "struct pipe_buffer.ops") == operations:
                self._claims.page("pipe", self._read.word(at, "struct pipe_buffer.page"))
        if self._read.has(f"{name}.tmp_page"):
            self._claims.each_page("pipe", pipe + self._read.offset(f"{name}.tmp_page"), 2)

    def _socket(self, socket: int) -> None:
        """Add the data in the queues of a struct socket, and the rings of a packet socket."""
        sock = self._read.word(socket, "struct socket.sk")
        if not sock or not self._read.new(sock):
            return
        family = self._read.number(sock, "struct sock.__sk_common.skc_family") & 0xFFFF
        if family == _AF_PACKET:
            self._packet(sock)
        for name in ("sk_receive_queue", "sk_write_queue", "sk_error_queue"):
            self._queue(sock + self._read.offset(f"struct sock.{name}"))
        if family in (2, 10) and self._read.number(sock, "struct sock.sk_protocol") & 0xFFFF == _IPPROTO_TCP:
            for tree in ("struct sock.tcp_rtx_queue", "struct tcp_sock.out_of_order_queue"):
                if self._read.has(tree):
                    self._tree(self._read.word(sock, tree))

    def _queue(self, head: int) -> None:
        """Add the data of a struct sk_buff_head, whose first word leads to the first struct sk_buff."""
        at = self._read.memory.word(head)
        while at and at != head and self._read.new(at) and self._claims.left > 0:
            self._buffer(at)
            at = self._read.memory.word(at)

    def _tree(self, root: int) -> None:
        """Add the data of a red-black tree of struct sk_buff."""
        link = self._read.offset("struct sk_buff.rbnode")
        left, right = self._read.offset("struct rb_node.rb_left"), self._read.offset("struct rb_node.rb_right")
        todo = [root]
        while todo and self._claims.left > 0:
            node = todo.pop()
            if self._read.new(node):
                self._buffer(node - link)
                todo += [self._read.memory.word(node + left) or 0, self._read.memory.word(node + right) or 0]

    def _buffer(self, buffer: int, nested: bool = False) -> None:
        """Add the data of a struct sk_buff: its head, its fragments, and the buffers in its list."""
        head = self._read.word(buffer, "struct sk_buff.head")
        shared = head + (self._read.number(buffer, "struct sk_buff.end") & 0xFFFFFFFF)
        self._claims.address("socket", head)
        name = "struct skb_shared_info"
        count = (self._read.memory.read(shared + self._read.offset(f"{name}.nr_frags"), 1) or b"\0")[0]
        fragments = shared + self._read.offset(f"{name}.frags")
        for number in range(min(count, self._most_fragments)):
            page = self._read.memory.word(fragments + number * self._fragment) or 0  # the page is the first member
            if not page & 1:  # not memory of a device (struct net_iov)
                self._claims.page("socket", page)
        following = self._read.word(shared, f"{name}.frag_list")
        while not nested and self._read.new(following) and self._claims.left > 0:
            self._buffer(following, nested=True)
            following = self._read.memory.word(following) or 0
