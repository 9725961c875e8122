"""Pages whose struct page does not tell what they are, but whose owner does: rings, pipes and the queues of sockets.

They are found by the files that processes have open, and by the buffers of ftrace. A ring whose file was closed after
it was mapped, and the queue of a socket that no process has open, are not found. All structures are read word by word,
at offsets from debug information. Every list is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.cached_memory import Pages

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import Memmap, PageLayout

_MOST_TASKS = 1 << 20
_MOST_FILES = 1 << 20  # of one process, and of all of them together
_MOST_PAGES = 1 << 20  # of one ring or pipe
_MOST_IN_ALL = 1 << 22  # pages that are looked at
_MOST_CPUS = 8192
_MOST_ARRAYS = 1 << 10  # instances of ftrace

_AF_PACKET, _IPPROTO_TCP = 17, 6  # linux/socket.h, linux/in.h

Owned = tuple[str, int, int]


def owned_pages(prog: Program, memmap: Memmap, layout: PageLayout, notes: list[str]) -> list[Owned]:
    """Return (kind, first page frame, number of pages) of what was found.

    What this kernel does not have is left out. A structure that the dump lacks ends its list. ``notes`` say what was
    not found because debug information is missing.
    """
    try:
        owners = Owners(prog, memmap, layout)
        found = owners.found()
    except LookupError as error:
        notes.append(f"data of rings, pipes and sockets may count as other kernel pages: {error}")
        return []
    notes += [f"some rings, pipes or sockets may count as other kernel pages: {why}" for why in owners.other_forms]
    return found


class Owners:
    """The owners of pages in one kernel."""

    def __init__(self, prog: Program, memmap: Memmap, layout: PageLayout) -> None:
        from drgn import sizeof

        self._prog = prog
        self._layout = layout
        self._translate = memmap.translate
        self._memory = Pages(memmap.read)
        self._pages: dict[int, tuple[str, int]] = {}  # first page frame: kind, number of pages
        self._known: set[int] = set()  # rings and pipes that were seen
        self._offsets: dict[str, int] = {}
        self._other_forms: set[str] = set()
        self._left = _MOST_IN_ALL
        self._direct = _map_of_all_memory(prog)
        self._distance: Optional[int] = None
        fragments = prog.type("struct skb_shared_info").member("frags").type
        self._most_fragments = fragments.length or 17  # MAX_SKB_FRAGS
        self._fragment = sizeof(fragments) // self._most_fragments

    def found(self) -> list[Owned]:
        """Return what all owners have."""
        readers = self._readers()
        for file in self._files() if readers else ():
            read = readers.get(self._word(file, "struct file.f_op"))
            if read is not None:
                self._tried(read, self._word(file, "struct file.private_data"))
        self._tried(self._trace_buffers)
        if self._left <= 0:
            self._other_forms.add(f"they have more than {_MOST_IN_ALL} pages, or are damaged")
        return [(kind, first, count) for first, (kind, count) in self._pages.items()]

    def _tried(self, read: Callable[..., None], *arguments: int) -> None:
        """Call a reader. Note a structure that this kernel has in another form."""
        try:
            read(*arguments)
        except LookupError as error:
            self._other_forms.add(str(error))

    def _readers(self) -> dict[int, Callable[[int], None]]:
        """Return the function that reads a file's private data, by the file's operations."""
        from drgn import FaultError

        named = {
            "perf_fops": self._perf,
            "io_uring_fops": self._io_uring,
            "pipefifo_fops": self._pipe,
            "pipeanon_fops": self._pipe,  # since 6.15 apart from those of FIFOs
            "socket_file_ops": self._socket,
        }
        readers = {}
        for name, read in named.items():
            try:
                readers[int(self._prog[name].address_of_().value_())] = read
            except (LookupError, FaultError):
                continue
        return readers

    @property
    def other_forms(self) -> list[str]:
        """Return what was not found where it should be, in words."""
        return sorted(self._other_forms)

    # Files.

    def _files(self) -> Iterator[int]:
        """Yield each struct file that a process has open, once."""
        seen: set[int] = set()
        tables: set[int] = set()
        for task in self._processes():
            files = self._word(task, "struct task_struct.files")
            if not files or files in tables:
                continue
            tables.add(files)
            table = self._word(files, "struct files_struct.fdt")
            count = self._int(table, "struct fdtable.max_fds")
            if not 0 < count <= _MOST_FILES:
                continue
            data = self._memory.read(self._word(table, "struct fdtable.fd"), 8 * count)
            for file in struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]):
                if file and file not in seen:
                    seen.add(file)
                    yield file
            if len(seen) > _MOST_FILES:
                return

    def _processes(self) -> Iterator[int]:
        """Yield the leader of each process. The list ends where it is damaged."""
        link = self._offset("struct task_struct.tasks")
        first = int(self._prog["init_task"].address_of_().value_())
        at, seen = self._memory.word(first + link), {first + link}
        while at and at not in seen and len(seen) < _MOST_TASKS:
            seen.add(at)
            yield at - link
            at = self._memory.word(at)

    # Rings.

    def _perf(self, event: int) -> None:
        """Add the ring of a struct perf_event. Several events may share one."""
        ring = self._word(event, "struct perf_event.rb")
        if not self._new(ring):
            return
        self._at("ring", self._word(ring, "struct perf_buffer.user_page"))
        count = self._int(ring, "struct perf_buffer.nr_pages")
        self._each("ring", ring + self._offset("struct perf_buffer.data_pages"), count)
        count = self._int(ring, "struct perf_buffer.aux_nr_pages")
        self._each("ring", self._word(ring, "struct perf_buffer.aux_pages"), count)

    def _io_uring(self, context: int) -> None:
        """Add the rings of a struct io_ring_ctx.

        Since 6.14 they are regions, with an array of pages. Before, they are blocks of pages; since 6.10 also arrays.
        """
        if not self._new(context):
            return
        name = "struct io_ring_ctx"
        if self._has(f"{name}.ring_region"):
            for region in ("ring_region", "sq_region"):
                at = context + self._offset(f"{name}.{region}")
                count = self._int(at, "struct io_mapped_region.nr_pages")
                self._each_page("ring", self._word(at, "struct io_mapped_region.pages"), count)
            return
        for area, pages, length in (("rings", "ring_pages", "n_ring_pages"), ("sq_sqes", "sqe_pages", "n_sqe_pages")):
            self._at("ring", self._word(context, f"{name}.{area}"))
            if self._has(f"{name}.{pages}"):
                number = self._int(context, f"{name}.{length}") & 0xFFFF
                self._each_page("ring", self._word(context, f"{name}.{pages}"), number)

    def _packet(self, socket: int) -> None:
        """Add the rings of a struct packet_sock."""
        if not self._has("struct packet_sock.rx_ring"):
            return  # af_packet is a module without debug information
        for ring in ("rx_ring", "tx_ring"):
            at = socket + self._offset(f"struct packet_sock.{ring}")
            blocks = self._word(at, "struct packet_ring_buffer.pg_vec")
            count = self._int(at, "struct packet_ring_buffer.pg_vec_len")
            if blocks and self._new(blocks):
                self._each("ring", blocks, count)  # struct pgv is one pointer

    def _trace_buffers(self) -> None:
        """Add the buffers of ftrace: a list of pages for each CPU of each instance."""
        try:
            head = int(self._prog["ftrace_trace_arrays"].address_of_().value_())
        except LookupError:
            return
        at, seen = self._memory.word(head), {head}
        while at and at not in seen and len(seen) < _MOST_ARRAYS:
            seen.add(at)
            array = at - self._offset("struct trace_array.list")
            for name in ("array_buffer", "max_buffer", "snapshot_buffer"):
                if self._has(f"struct trace_array.{name}"):
                    self._trace_buffer(self._word(array, f"struct trace_array.{name}.buffer"))
            at = self._memory.word(at)

    def _trace_buffer(self, buffer: int) -> None:
        """Add the pages of a struct trace_buffer."""
        if not self._new(buffer):
            return
        cpus = self._word(buffer, "struct trace_buffer.buffers")
        for cpu in range(min(int(self._prog["nr_cpu_ids"]), _MOST_CPUS)):
            one = self._memory.word(cpus + 8 * cpu) or 0
            if not one:
                continue
            self._trace_page(self._word(one, "struct ring_buffer_per_cpu.reader_page"))
            # The lowest two bits of a link are flags (RB_PAGE_HEAD, kernel/trace/ring_buffer.c).
            at = self._word(one, "struct ring_buffer_per_cpu.pages") & ~3
            while self._new(at) and self._left > 0:
                self._trace_page(at - self._offset("struct buffer_page.list"))
                at = (self._memory.word(at) or 0) & ~3

    def _trace_page(self, page: int) -> None:
        """Add the page of a struct buffer_page."""
        self._at("ring", self._word(page, "struct buffer_page.page"))

    # Pipes and sockets.

    def _pipe(self, pipe: int) -> None:
        """Add the data of a struct pipe_inode_info, and the pages that it keeps for later."""
        if not self._new(pipe):
            return
        name = "struct pipe_inode_info"
        count = self._int(pipe, f"{name}.ring_size" if self._has(f"{name}.ring_size") else f"{name}.buffers")
        buffers, size = self._word(pipe, f"{name}.bufs"), self._prog.type("struct pipe_buffer").size or 0
        operations = int(self._prog["anon_pipe_buf_ops"].address_of_().value_())
        for at in range(buffers, buffers + size * min(max(count, 0), _MOST_PAGES), size or 1):
            self._left -= 1
            if self._left <= 0:
                return
            if self._word(at, "struct pipe_buffer.ops") == operations:
                self._page("pipe", self._word(at, "struct pipe_buffer.page"))
        if self._has(f"{name}.tmp_page"):
            self._each_page("pipe", pipe + self._offset(f"{name}.tmp_page"), 2)

    def _socket(self, socket: int) -> None:
        """Add the data in the queues of a struct socket, and the rings of a packet socket."""
        sock = self._word(socket, "struct socket.sk")
        if not sock or not self._new(sock):
            return
        family = self._int(sock, "struct sock.__sk_common.skc_family") & 0xFFFF
        if family == _AF_PACKET:
            self._packet(sock)
        for name in ("sk_receive_queue", "sk_write_queue", "sk_error_queue"):
            self._queue(sock + self._offset(f"struct sock.{name}"))
        if family in (2, 10) and self._int(sock, "struct sock.sk_protocol") & 0xFFFF == _IPPROTO_TCP:
            for tree in ("struct sock.tcp_rtx_queue", "struct tcp_sock.out_of_order_queue"):
                if self._has(tree):
                    self._tree(self._word(sock, tree))

    def _queue(self, head: int) -> None:
        """Add the data of a struct sk_buff_head, whose first word leads to the first struct sk_buff."""
        at = self._memory.word(head)
        while at and at != head and self._new(at) and self._left > 0:
            self._buffer(at)
            at = self._memory.word(at)

    def _tree(self, root: int) -> None:
        """Add the data of a red-black tree of struct sk_buff."""
        link = self._offset("struct sk_buff.rbnode")
        left, right = self._offset("struct rb_node.rb_left"), self._offset("struct rb_node.rb_right")
        todo = [root]
        while todo and self._left > 0:
            node = todo.pop()
            if self._new(node):
                self._buffer(node - link)
                todo += [self._memory.word(node + left) or 0, self._memory.word(node + right) or 0]

    def _buffer(self, buffer: int, nested: bool = False) -> None:
        """Add the data of a struct sk_buff: its head, its fragments, and the buffers in its list."""
        head = self._word(buffer, "struct sk_buff.head")
        shared = head + (self._int(buffer, "struct sk_buff.end") & 0xFFFFFFFF)
        self._at("socket", head)
        name = "struct skb_shared_info"
        count = (self._memory.read(shared + self._offset(f"{name}.nr_frags"), 1) or b"\0")[0]
        fragments = shared + self._offset(f"{name}.frags")
        for number in range(min(count, self._most_fragments)):
            page = self._memory.word(fragments + number * self._fragment) or 0  # the page is the first member
            if not page & 1:  # not memory of a device (struct net_iov)
                self._page("socket", page)
        following = self._word(shared, f"{name}.frag_list")
        while not nested and self._new(following) and self._left > 0:
            self._buffer(following, nested=True)
            following = self._memory.word(following) or 0

    # Pages.

    def _each(self, kind: str, at: int, count: int) -> None:
        """Add the pages that an array of addresses leads to, up to the first that is not mapped."""
        for number in range(min(max(count, 0), _MOST_PAGES) if at else 0):
            address = self._memory.word(at + 8 * number)
            if address is None or self._left <= 0 or not self._at(kind, address):
                return

    def _each_page(self, kind: str, at: int, count: int) -> None:
        """Add the pages of an array of pointers to struct page."""
        for number in range(min(max(count, 0), _MOST_PAGES) if at else 0):
            page = self._memory.word(at + 8 * number)
            self._left -= 1
            if page is None or self._left <= 0:
                return
            self._page(kind, page)

    def _at(self, kind: str, address: int) -> bool:
        """Add the page at a virtual address, with all pages that were allocated together with it.

        Return whether the address is mapped.
        """
        self._left -= 1
        physical = self._physical(address) if address else None
        if physical is None:
            return False
        layout = self._layout
        self._page(kind, layout["base"] + (physical >> layout["page_bits"]) * layout["size"])
        return True

    def _physical(self, address: int) -> Optional[int]:
        """Return the physical address, or None. In the map of all memory one distance holds, so one walk is enough."""
        start, end = self._direct
        if not start <= address < end:
            return self._translate(address)
        if self._distance is None:
            physical = self._translate(address)
            self._distance = address - physical if physical is not None else None
            return physical
        return address - self._distance if address >= self._distance else None

    def _page(self, kind: str, page: int) -> None:
        """Add a page by the address of its struct page, with all pages that were allocated together with it."""
        layout = self._layout
        self._left -= 1
        frame, rest = divmod(page - layout["base"], layout["size"])
        if page < layout["base"] or rest or frame in self._pages or self._left <= 0:
            return
        head = self._memory.word(page + layout["head"]) or 0
        if head & 1 and not layout["head_is_mask"]:
            page = head - 1
            frame, rest = divmod(page - layout["base"], layout["size"])
            if page < layout["base"] or rest or frame in self._pages:
                return
        flags = self._memory.word(page + layout["flags"]) or 0
        self._pages[frame] = kind, 1 << self._order(page) if flags & layout["compound"] else 1

    def _order(self, page: int) -> int:
        """Return the order of a compound page: how many pages were allocated together, as a power of two."""
        from drgn import FaultError, Object
        from drgn.helpers.linux.mm import compound_order

        try:
            order = int(compound_order(Object(self._prog, "struct page *", page)))
        except (FaultError, LookupError, ValueError):
            return 0
        return order if 0 <= order < 32 else 0

    # Structures.

    def _new(self, structure: int) -> bool:
        """Return whether a structure is there, and seen for the first time."""
        if not structure or structure in self._known:
            return False
        self._known.add(structure)
        return True

    def _has(self, member: str) -> bool:
        """Return whether this kernel has a member (struct.member)."""
        try:
            self._offset(member)
        except LookupError:
            return False
        return True

    def _offset(self, member: str) -> int:
        """Return the offset of ``struct NAME.MEMBER``, in bytes. Raises LookupError if there is none."""
        from drgn import offsetof

        known = self._offsets.get(member)
        if known is None:
            name, _dot, path = member.partition(".")
            known = self._offsets[member] = int(offsetof(self._prog.type(name), path))
        return known

    def _word(self, structure: int, member: str) -> int:
        """Return a member of 8 bytes. Return 0 if there is no structure, or the dump lacks it."""
        return (self._memory.word(structure + self._offset(member)) or 0) if structure else 0

    def _int(self, structure: int, member: str) -> int:
        """Return a member of 4 bytes, signed. Return 0 if there is no structure, or the dump lacks it."""
        data = self._memory.read(structure + self._offset(member), 4) if structure else b""
        return int.from_bytes(data, "little", signed=True) if len(data) == 4 else 0


def _map_of_all_memory(prog: Program) -> tuple[int, int]:
    """Return where the kernel has mapped all memory, as (start, end).

    Return (0, 0) if that is not known: only x86-64 has a variable for it (arch/x86/kernel/head64.c).
    """
    from drgn import FaultError

    try:
        return int(prog["page_offset_base"].value_()), int(prog["high_memory"].value_())
    except (FaultError, LookupError):
        return 0, 0
