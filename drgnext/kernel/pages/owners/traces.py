"""Pages of ftrace: its buffers, its list of functions, and the names of tasks that it keeps."""

from __future__ import annotations

from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures

_MOST_ARRAYS = 1 << 10  # instances of ftrace
_MOST_RECORDS = 1 << 16  # blocks of records, of the kernel and of each module
_NAME = 16  # TASK_COMM_LEN


def find(read: Structures, claims: Claims) -> set[str]:
    """Claim the pages of ftrace. Return what this kernel has in another form."""
    return Ftrace(read, claims).found()


class Ftrace:
    """ftrace in one kernel."""

    def __init__(self, read: Structures, claims: Claims) -> None:
        self._read = read
        self._claims = claims

    def found(self) -> set[str]:
        """Claim what ftrace has. Return what this kernel has in another form."""
        other_forms = set()
        for variable, find in (
            ("ftrace_trace_arrays", self._trace_buffers),
            ("ftrace_pages_start", self._functions),
            ("savedcmd", self._names),
        ):
            try:
                head = self._read.variable(variable)
            except LookupError:
                continue  # this kernel has no ftrace, or no tracer
            try:
                find(head)
            except LookupError as error:
                other_forms.add(str(error))
        return other_forms

    def _functions(self, first: int) -> None:
        """Add the records of functions that can be traced: blocks of pages, of a struct ftrace_page each."""
        at = self._read.memory.word(first) or 0
        for _number in range(_MOST_RECORDS):
            if not self._read.new(at):
                return
            if self._read.has("struct ftrace_page.order"):
                order = self._read.number(at, "struct ftrace_page.order")
            else:  # before 5.13 (db42523b4f3e) a block only has the number of its records
                records = self._read.number(at, "struct ftrace_page.size") & 0xFFFFFFFF
                order = (records * self._read.size("struct dyn_ftrace") >> 12).bit_length()
            self._claims.address("ftrace", self._read.word(at, "struct ftrace_page.records"), order)
            at = self._read.word(at, "struct ftrace_page.next")

    def _names(self, pointer: int) -> None:
        """Add the names of tasks that were traced (struct saved_cmdlines_buffer). Its arrays lie behind it."""
        name = "struct saved_cmdlines_buffer"
        saved = self._read.memory.word(pointer) or 0
        if self._read.has(f"{name}.saved_cmdlines") and saved:
            count = self._read.number(saved, f"{name}.cmdline_num") & 0xFFFFFFFF
            behind = self._read.offset(f"{name}.saved_cmdlines")
            pages = (behind + _NAME * count + 4095) >> 12
            self._claims.address("ftrace", saved, (pages - 1).bit_length())

    def _trace_buffers(self, head: int) -> None:
        """Add the buffers of ftrace: a list of pages for each CPU of each instance."""
        link = self._read.offset("struct trace_array.list")
        for _number, array in zip(range(_MOST_ARRAYS), self._read.linked(head, link)):
            for name in ("array_buffer", "max_buffer", "snapshot_buffer"):
                if self._read.has(f"struct trace_array.{name}"):
                    self._trace_buffer(self._read.word(array, f"struct trace_array.{name}.buffer"))

    def _trace_buffer(self, buffer: int) -> None:
        """Add the pages of a struct trace_buffer."""
        if not self._read.new(buffer):
            return
        cpus = self._read.word(buffer, "struct trace_buffer.buffers")
        for cpu in range(self._read.cpus()):
            one = self._read.memory.word(cpus + 8 * cpu) or 0
            if not one:
                continue
            self._trace_page(self._read.word(one, "struct ring_buffer_per_cpu.reader_page"))
            # The lowest two bits of a link are flags (RB_PAGE_HEAD, kernel/trace/ring_buffer.c).
            at = self._read.word(one, "struct ring_buffer_per_cpu.pages") & ~3
            while self._read.new(at) and self._claims.left > 0:
                self._trace_page(at - self._read.offset("struct buffer_page.list"))
                at = (self._read.memory.word(at) or 0) & ~3

    def _trace_page(self, page: int) -> None:
        """Add the page of a struct buffer_page."""
        self._claims.address("ring", self._read.word(page, "struct buffer_page.page"))
