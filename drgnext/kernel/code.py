"""Where the kernel's code is: its own text, that of its modules, the entry code, and the unwind tables of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, Optional

from dmods._engine import disassemble
from drgnext.kernel import orc
from drgnext.kernel.words import Memory

_MOST_MODULES = 10_000
_SAMPLES = 512
_LONGEST_CALL = 8  # bytes of a call on x86: call *disp32(%base,%index,8) with a REX prefix


class Text(NamedTuple):
    """A stretch of code, the module it belongs to ("" for vmlinux), and its unwind table."""

    start: int
    end: int
    module: str
    table: Optional[orc.Table]


class KernelCode:
    """A :class:`~drgnext.kernel.traps.CodeMap` of a drgn program. ``notes`` says what could not be found."""

    def __init__(self, prog: Any, memory: Memory, arch: str) -> None:
        self.notes: list[str] = []
        self._memory = memory
        self._arch = arch
        self.format = _format(prog) if arch == "x86_64" else None
        texts = list(_vmlinux(prog, self.format is not None))
        try:
            texts += _modules(prog, self.format is not None)
        except (LookupError, ValueError, AttributeError) as error:
            self.notes.append(f"the list of modules cannot be read ({error}): their code is not known")
        self.texts = sorted(texts)
        self._starts = [text.start for text in self.texts]
        self._init = _range(prog, *_INIT_TEXT)
        self._entry = [found for found in (_range(prog, *names) for names in _ENTRY_TEXT) if found]
        self._rules: dict[int, Optional[orc.Rule]] = {}
        self._calls: dict[int, bool] = {}
        if self.format is not None:
            self._calibrate()

    def text_at(self, address: int) -> Optional[Text]:
        at = bisect_right(self._starts, address) - 1
        return self.texts[at] if at >= 0 and address < self.texts[at].end else None

    def is_code(self, address: int) -> bool:
        return self.text_at(address) is not None

    def is_freed(self, address: int) -> bool:
        """Whether it lies in the kernel's code for its own start, whose memory has other uses since (free_initmem)."""
        return self._init is not None and self._init[0] <= address < self._init[1]

    def is_entry(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._entry)

    def after_call(self, address: int) -> bool:
        known = self._calls.get(address)
        if known is None:
            known = self._calls[address] = self.call_before(address) is not None
        return known

    def call_before(self, address: int) -> Optional[tuple[int, str]]:
        """The call that ends at ``address``: where it begins, and how it reads."""
        if not self.is_code(address - 1):
            return None
        if self._arch != "x86_64":
            code = self._memory.read(address - 4, 4)
            decoded = disassemble(self._arch, code, address - 4) if len(code) == 4 else None
            return (address - 4, decoded[0]) if decoded and decoded[0].startswith("bl") else None
        code = self._memory.read(address - _LONGEST_CALL, _LONGEST_CALL)
        # A relative call (5 bytes) before anything that may by chance end another way.
        for length in (5, 2, 3, 4, 6, 7, 8):
            decoded = disassemble(self._arch, code[-length:], address - length) if len(code) == _LONGEST_CALL else None
            if decoded is not None and decoded[1] == length and decoded[0].startswith(("call", "data16 call")):
                return address - length, decoded[0]
        return None

    def rule(self, pc: int) -> Optional[orc.Rule]:
        """The ORC at ``pc``. None: no table, or it is not in the dump."""
        if pc in self._rules:
            return self._rules[pc]
        text = self.text_at(pc)
        rule = None
        if text is not None and text.table is not None and self.format is not None:
            rule = text.table.find(self._memory, pc, self.format)
        self._rules[pc] = rule
        return rule

    def _calibrate(self) -> None:
        """The numbering of the registers changed without a trace in debug information: the tables tell."""
        table = next((text.table for text in self.texts if not text.module and text.table), None)
        names = orc.numbering(table.flags(self._memory, _SAMPLES)) if table else None
        if names is None:
            self.format = None
            self.notes.append("the kernel's own unwind tables (ORC) are not in the dump")
        elif self.format is not None:
            self.format = self.format._replace(registers=names)


_INIT_TEXT = ("_sinittext", "_einittext")
_ENTRY_TEXT = (("__entry_text_start", "__entry_text_end"), ("__irqentry_text_start", "__irqentry_text_end"))


def _range(prog: Any, first: str, last: str) -> Optional[tuple[int, int]]:
    try:
        start, end = int(prog.symbol(first).address), int(prog.symbol(last).address)
    except LookupError:
        return None
    return (start, end) if start < end else None


def _format(prog: Any) -> Optional[orc.Format]:
    try:
        entry = prog.type("struct orc_entry")
    except LookupError:
        return None

    def bit(name: str) -> Optional[int]:
        return int(entry.member(name).bit_offset) - 32 if entry.has_member(name) else None

    kind = bit("type")
    if kind is None or entry.size != 6:
        return None
    return orc.Format(kind, int(entry.member("type").bit_field_size), bit("end"), bit("signal"), ())


def _vmlinux(prog: Any, with_orc: bool) -> Iterator[Text]:
    places = _range(prog, "__start_orc_unwind_ip", "__stop_orc_unwind_ip")
    entries = _range(prog, "__start_orc_unwind", "__stop_orc_unwind")
    for first, last in (("_stext", "_etext"), _INIT_TEXT):
        found = _range(prog, first, last)
        if found is None:
            continue
        table = None
        if with_orc and places and entries:
            count = min((places[1] - places[0]) // 4, (entries[1] - entries[0]) // 6)
            table = orc.Table(places[0], entries[0], count, *found)
        yield Text(*found, "", table)


def _modules(prog: Any, with_orc: bool) -> list[Text]:
    from drgn import FaultError
    from drgn.helpers.linux.module import for_each_module

    texts: list[Text] = []
    seen = set()
    try:
        for module in islice(for_each_module(prog), _MOST_MODULES):
            address = int(module)
            if address in seen:
                break
            seen.add(address)
            name = module.name.string_().decode(errors="replace")
            for start, size in _module_text(module):
                table = None
                if with_orc and hasattr(module.arch, "num_orcs"):
                    arch = module.arch
                    table = orc.Table(
                        int(arch.orc_unwind_ip), int(arch.orc_unwind), int(arch.num_orcs), start, start + size
                    )
                texts.append(Text(start, start + size, name, table))
    except FaultError:
        pass  # the modules so far
    return texts


def _module_text(module: Any) -> Iterator[tuple[int, int]]:
    """(address, size) of the module's code: 6.4 has an array by kind of memory, before it were two layouts."""
    try:
        kinds = [module.prog_.constant(name) for name in ("MOD_TEXT", "MOD_INIT_TEXT")]
    except LookupError:
        for name in ("core_layout", "init_layout"):
            layout = getattr(module, name)
            if layout.text_size:
                yield int(layout.base), int(layout.text_size)
        return
    for kind in kinds:
        memory = module.mem[kind]
        if memory.size:
            yield int(memory.base), int(memory.size)
