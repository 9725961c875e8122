"""The vector and floating-point registers of a stopped thread, as gdb has them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import gdb

from dmods.base.regex import regex
from dmods.process.vectors import x87_register
from dmods.target import Arch

# gdb's names of the same register, the widest form first, and the field of its value that has words of 64 bits
# (gdb/features/i386, gdb/features/aarch64; the wide forms of x86 are gdb's own).
_X86 = (("zmm", "v8_int64"), ("ymm", "v4_int64"), ("xmm", "v2_int64"))
_ARM = (("z", "d.u"), ("v", "d.u"))
_LOST = (
    f"gdb {gdb.VERSION} reads AVX-512's registers from the wrong places on this processor (gdb 14 does not): "
    "a block that only they hold is reported as leaked"
)
_WORD = regex(r"0x([0-9a-f]+)")


class LiveVectors(Mapping[str, bytes]):
    """The registers of one thread by name, each with its bytes, lowest first: see ``dmods.process.vectors``.

    gdb is asked on first use: it takes milliseconds for each thread, and most commands do not need them.
    """

    def __init__(self, thread: Any, arch: Arch, local: bool, notes: list[str]) -> None:
        """Begin. What gdb cannot tell is added to `notes` on first use."""
        self._thread = thread
        self._arch = arch
        self._local = local
        self._notes = notes
        self._values: Optional[dict[str, bytes]] = None

    def _read(self) -> dict[str, bytes]:
        if self._values is None:
            selected = gdb.selected_thread()
            frame = gdb.selected_frame() if selected is not None and selected.is_stopped() else None
            try:
                self._thread.switch()
                newest = gdb.newest_frame()
                self._values = dict(_registers(newest, self._arch))
                if self._local and _loses_registers(newest) and _LOST not in self._notes:
                    self._notes.append(_LOST)
            except gdb.error:  # the thread has gone
                self._values = {}
            finally:
                if selected is not None and selected.is_valid():
                    selected.switch()
                    if frame is not None and frame.is_valid():
                        frame.select()
        return self._values

    def __getitem__(self, name: str) -> bytes:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _loses_registers(frame: Any) -> bool:
    """Return whether gdb reads AVX-512's registers from the wrong places.

    Before 14, gdb has the XSAVE layout of Intel's processors alone.
    """
    release = re.match(r"\d+", gdb.VERSION)
    if release is None or int(release[0]) >= 14 or all(r.name != "zmm0" for r in frame.architecture().registers()):
        return False
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        return "AuthenticAMD" in info.read(4096)


def _registers(frame: Any, arch: Arch) -> Iterator[tuple[str, bytes]]:
    known = {register.name for register in frame.architecture().registers()}
    for number in range(32):
        for kind, field in _ARM if arch.name == "aarch64" else _X86:
            data = _vector(frame, f"{kind}{number}", field) if f"{kind}{number}" in known else None
            if data is not None:
                yield f"{kind}{number}", data
                break
    for number in range(8):
        value = _value(frame, f"k{number}") if f"k{number}" in known else None
        if value is not None:
            yield f"k{number}", (int(value) & ((1 << 64) - 1)).to_bytes(8, "little")
    if "st0" in known:
        yield from _x87(frame)


def _x87(frame: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the registers of the x87 unit and of MMX. Only this command prints their bytes, for the selected frame."""
    status = _value(frame, "fstat")
    try:
        text = gdb.execute("info registers " + " ".join(f"st{number}" for number in range(8)), to_string=True)
    except gdb.error:
        return
    for number, raw in re.findall(r"^st([0-7])\s.*\(raw 0x([0-9a-f]{20})\)$", text, re.MULTILINE):
        yield x87_register(int(number), 0 if status is None else int(status), bytes.fromhex(raw)[::-1])


def _value(frame: Any, name: str) -> Any:
    """Return gdb's value of a register, or None where it has none."""
    try:
        value = frame.read_register(name)
        return None if value.is_optimized_out else value
    except (ValueError, gdb.error):
        return None


def _vector(frame: Any, name: str, field: str) -> Optional[bytes]:
    value = _value(frame, name)
    try:
        for part in field.split(".") if value is not None else ():
            value = value[part]
        # One call for all words: there may be thousands of threads. (Value.bytes came with gdb 15.)
        text = value.format_string(format="x", max_elements=0, repeat_threshold=0) if value is not None else ""
    except gdb.error:  # this register has no such field, or its content is unavailable
        return None
    words = [int(word, 16) for word in _WORD.findall(text)]
    return struct.pack(f"<{len(words)}Q", *words) if any(words) else None
