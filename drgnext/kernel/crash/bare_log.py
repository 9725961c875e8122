"""The kernel's log, read without debug information: VMCOREINFO has the offsets for that (log_buf_vmcoreinfo_setup).

This knows the ring of records of 5.10 and later (kernel/printk/printk_ringbuffer.h).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from drgnext.kernel.crash.records import Record

if TYPE_CHECKING:
    from drgn import Program

_LINE = regex(r"^([\w.()-]{1,100})=(.{0,4096})$", re.M | re.A)
_MOST_BITS = 24  # of the number of records
_MOST_DATA_BITS = 31  # of the size of the text (LOG_BUF_LEN_MAX)
_COMMITTED, _FINALIZED = 1, 2  # enum desc_state
_STATE_SHIFT = 62  # DESC_FLAGS_SHIFT
_BLOCK_HEADER = 8  # struct prb_data_block: the id comes before the text


def read_vmcoreinfo(prog: Program) -> dict[str, str]:
    """Return the lines KEY=VALUE of VMCOREINFO, or {} if the dump has none."""
    try:
        text = prog["VMCOREINFO"].string_().decode("ascii", "replace")
    except LookupError:
        return {}
    return dict(_LINE.findall(text))


def read_bare_log(prog: Program, info: dict[str, str]) -> tuple[list[Record], list[str]]:
    """Return the records of the log, and notes. ``info`` is what read_vmcoreinfo() returns."""
    from drgn import FaultError

    try:
        ring = _Ring(prog, info)
    except KeyError as error:
        return [], [f"the kernel's log cannot be read without debugging information: VMCOREINFO lacks {error.args[0]}"]
    except (FaultError, ValueError, OverflowError) as error:
        return [], [f"the kernel's log cannot be read: {error}"]
    return ring.records()


class _Layout(NamedTuple):
    """The sizes and offsets that are needed, from VMCOREINFO."""

    desc: int
    info: int
    state: int
    block: int
    begin: int
    next: int
    time: int
    length: int
    caller: Optional[int]


class _Ring:
    """struct printk_ringbuffer."""

    def __init__(self, prog: Program, info: dict[str, str]) -> None:
        """Read the ring's header. Raises KeyError, ValueError, drgn.FaultError."""
        self._prog = prog
        self._info = info
        ring = int(info["SYMBOL(prb)"], 16)
        at = self._word(ring)
        desc_ring = at + self._offset("printk_ringbuffer.desc_ring")
        data_ring = at + self._offset("printk_ringbuffer.text_data_ring")
        self._bits = self._int(desc_ring + self._offset("prb_desc_ring.count_bits"))
        self._data_bits = self._int(data_ring + self._offset("prb_data_ring.size_bits"))
        if not 0 < self._bits <= _MOST_BITS or not 0 < self._data_bits <= _MOST_DATA_BITS:
            raise ValueError("its sizes cannot be right")
        self._descs = self._word(desc_ring + self._offset("prb_desc_ring.descs"))
        self._infos = self._word(desc_ring + self._offset("prb_desc_ring.infos"))
        self._data = self._word(data_ring + self._offset("prb_data_ring.data"))
        counter = self._offset("atomic_long_t.counter") if "OFFSET(atomic_long_t.counter)" in info else 0
        self._head = self._word(desc_ring + self._offset("prb_desc_ring.head_id") + counter)
        self._tail = self._word(desc_ring + self._offset("prb_desc_ring.tail_id") + counter)
        self._layout = _Layout(
            self._size("prb_desc"),
            self._size("printk_info"),
            self._offset("prb_desc.state_var") + counter,
            self._offset("prb_desc.text_blk_lpos"),
            self._offset("prb_data_blk_lpos.begin"),
            self._offset("prb_data_blk_lpos.next"),
            self._offset("printk_info.ts_nsec"),
            self._offset("printk_info.text_len"),
            self._offset("printk_info.caller_id") if "OFFSET(printk_info.caller_id)" in info else None,
        )

    def records(self) -> tuple[list[Record], list[str]]:
        """Return the records from tail to head, a record for each line, and notes."""
        from drgn import FaultError

        found: list[Record] = []
        count = ((self._head - self._tail) & ((1 << _STATE_SHIFT) - 1)) + 1
        if count > 1 << self._bits:
            return [], ["the kernel's log is damaged: the number of its records cannot be right"]
        lost = 0
        for number in range(count):
            try:
                found += self._record((self._tail + number) & ((1 << _STATE_SHIFT) - 1))
            except (FaultError, ValueError, OverflowError):
                lost += 1
        return found, [f"{lost} records of the kernel's log cannot be read"] if lost else []

    def _record(self, number: int) -> list[Record]:
        """Return the lines of the record with that id, or [] if it was not finished."""
        layout = self._layout
        index = number & ((1 << self._bits) - 1)
        desc, info = self._descs + index * layout.desc, self._infos + index * layout.info
        state = self._word(desc + layout.state)
        if state >> _STATE_SHIFT not in (_COMMITTED, _FINALIZED) or state & ((1 << _STATE_SHIFT) - 1) != number:
            return []
        begin = self._word(desc + layout.block + layout.begin)
        following = self._word(desc + layout.block + layout.next)
        length = int.from_bytes(self._prog.read(info + layout.length, 2), "little")
        time = self._word(info + layout.time) / 1e9
        if begin & 1 or following & 1:  # a record without text (LPOS_DATALESS)
            return [Record(time, "", *self._who(info))]
        size = 1 << self._data_bits
        # A block that does not fit at the end of the buffer lies at its start. One that ends exactly there fits in some
        # releases. In the others no block does.
        at = begin % size if begin >> self._data_bits == (following - 1) >> self._data_bits else 0
        length = min(length, size - at - _BLOCK_HEADER)
        text = self._prog.read(self._data + at + _BLOCK_HEADER, max(0, length))
        who = self._who(info)
        return [Record(time, line, *who) for line in text.decode(errors="replace").split("\n")]

    def _who(self, info: int) -> tuple[Optional[int], Optional[int], int]:
        """Return (caller, level, facility) of a record.

        The last two have no offsets in VMCOREINFO. They are two bytes between the length and the caller: the facility,
        then three bits of level above five of flags (struct printk_info).
        """
        length, caller = self._layout.length, self._layout.caller
        if caller is None:
            return None, None, 0
        data = self._prog.read(info + length, 8)
        who = self._int(info + caller)
        return (who, data[3] >> 5, data[2]) if caller == length + 4 else (who, None, 0)

    def _offset(self, name: str) -> int:
        return _number(self._info[f"OFFSET({name})"])

    def _size(self, name: str) -> int:
        return _number(self._info[f"SIZE({name})"])

    def _word(self, address: int) -> int:
        return int.from_bytes(self._prog.read(address & 0xFFFFFFFFFFFFFFFF, 8), "little")

    def _int(self, address: int) -> int:
        return int.from_bytes(self._prog.read(address & 0xFFFFFFFFFFFFFFFF, 4), "little")


def _number(text: str) -> int:
    """Return an offset or a size. Raises ValueError."""
    value = int(text[:20])
    if not 0 <= value < 1 << 20:
        raise ValueError(f"{value} is no offset")
    return value


def crash_time(info: dict[str, str]) -> Optional[int]:
    """Return the time of the crash in seconds since 1970, or None. It is there after a crash by kexec."""
    text = info.get("CRASHTIME", "")
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None
