"""Where the kernel's code is: its own text, the text of modules, the entry code, and their unwind tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods._engine import disassemble
from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory, Pages
from drgnext.kernel.dump.machine import architecture
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.made_code import MadeCode, MadeCodes

if TYPE_CHECKING:
    from drgn import Object, Program

    from drgnext.kernel.dump.target import Kernel


_MOST_MODULES = 10_000
_SAMPLES = 512
# What the kernel writes over a call to switch it off (x86_nops[5], AARCH64_INSN_HINT_NOP).
_NOPS = {"x86_64": b"\x0f\x1f\x44\0\0", "aarch64": b"\x1f\x20\x03\xd5"}
_LONGEST_CALL = 8  # bytes of a call on x86: call *disp32(%base,%index,8) with a REX prefix


class Text(NamedTuple):
    """A range of code, its module ("" for vmlinux), and its unwind table."""

    start: int
    end: int
    module: str
    table: Optional[orc.Table]


class KernelCode:
    """A :class:`~drgnext.kernel.stacks.traps.CodeMap` of a drgn program. ``notes`` say what was not found."""

    def __init__(self, prog: Program, memory: Memory, arch: str) -> None:
        self.notes: list[str] = []
        self._memory = memory
        self._arch = arch
        self.format = _format(prog) if arch == "x86_64" else None
        self.made = MadeCodes(prog, memory)
        texts = list(_vmlinux(prog, self.format is not None))
        try:
            texts += _modules(prog, self.format is not None)
        except (LookupError, ValueError, AttributeError) as error:
            self.notes.append(f"the list of modules cannot be read ({error}): module code is not known")
        self.texts = sorted(texts)
        self._starts = [text.start for text in self.texts]
        self._init = symbol_range(prog, *_INIT_TEXT)
        self._entry = [found for found in (symbol_range(prog, *names) for names in _ENTRY_TEXT) if found]
        self._rules: dict[int, Optional[orc.Rule]] = {}
        self._calls: dict[int, bool] = {}
        if self.format is not None:
            self._calibrate()

    def text_at(self, address: int) -> Optional[Text]:
        """Return the text that holds the address, or None."""
        at = bisect_right(self._starts, address) - 1
        return self.texts[at] if at >= 0 and address < self.texts[at].end else None

    def is_code(self, address: int) -> bool:
        """Return whether code is at the address: the kernel's, a module's, or what the kernel has made as it ran."""
        return self.text_at(address) is not None or self.made.at(address) is not None

    def made_at(self, address: int) -> Optional[MadeCode]:
        """Return the code that the kernel has made as it ran, or None."""
        return self.made.at(address) if self.text_at(address) is None else None

    def is_freed(self, address: int) -> bool:
        """Return whether the address is in the kernel's initialization code.

        The kernel frees that memory after boot and reuses it (free_initmem).
        """
        return self._init is not None and self._init[0] <= address < self._init[1]

    def is_entry(self, address: int) -> bool:
        """Return whether the address is in the entry code, which saves registers and calls handlers."""
        return any(start <= address < end for start, end in self._entry)

    def after_call(self, address: int) -> bool:
        """Return whether a call ends at the address, as it does at a return address."""
        known = self._calls.get(address)
        if known is None:
            known = self._calls[address] = self.call_before(address) is not None
        return known

    def may_return_to(self, address: int) -> bool:
        """Return whether a call can have been before the address when a stack was recorded.

        The kernel writes nops over the calls of a tracer that was stopped, and over static calls that have no target.
        Code that the dump lacks may be anything.
        """
        nop = _NOPS.get(self._arch, b"")
        before = self._memory.read(address - _LONGEST_CALL, _LONGEST_CALL)
        return len(before) < _LONGEST_CALL or before.endswith(nop) or self.after_call(address)

    def call_before(self, address: int) -> Optional[tuple[int, str]]:
        """Return (address, disassembly) of the call that ends at ``address``, or None."""
        if not self.is_code(address - 1):
            return None
        if self._arch != "x86_64":
            code = self._memory.read(address - 4, 4)
            decoded = disassemble(self._arch, code, address - 4) if len(code) == 4 else None
            return (address - 4, decoded[0]) if decoded and decoded[0].startswith("bl") else None
        code = self._memory.read(address - _LONGEST_CALL, _LONGEST_CALL)
        # Try a relative call (5 bytes) first. Another length may fit by chance.
        for length in (5, 2, 3, 4, 6, 7, 8):
            decoded = disassemble(self._arch, code[-length:], address - length) if len(code) == _LONGEST_CALL else None
            if decoded is not None and decoded[1] == length and decoded[0].startswith(("call", "data16 call")):
                return address - length, decoded[0]
        return None

    def rule(self, pc: int) -> Optional[orc.Rule]:
        """Return the ORC rule at ``pc``. Return None if there is no table, or it is not in the dump."""
        if pc in self._rules:
            return self._rules[pc]
        rule = self._rules[pc] = self._find_rule(pc)
        return rule

    def _find_rule(self, pc: int) -> Optional[orc.Rule]:
        """Return the rule at ``pc``. Code that was copied has the rule of the original."""
        text = self.text_at(pc)
        if text is not None:
            if text.table is None or self.format is None:
                return None
            return text.table.find(self._memory, pc, self.format)
        made = self.made.at(pc)
        if made is None or self._arch != "x86_64":
            return None
        if made.like:
            return self.rule(made.like + (pc - made.start))
        if made.probed and made.name == "kprobe_insn_page":
            return self.rule(made.probed)
        return self.made.rule(made, pc)

    def _calibrate(self) -> None:
        """Find the numbering of the registers from the tables.

        It changed without a trace in debug information.
        """
        table = next((text.table for text in self.texts if not text.module and text.table), None)
        names = orc.numbering(table.flags(self._memory, _SAMPLES)) if table else None
        if names is None:
            self.format = None
            self.notes.append("the kernel's own unwind tables (ORC) are not in the dump")
        elif self.format is not None:
            self.format = self.format._replace(registers=names)


_INIT_TEXT = ("_sinittext", "_einittext")
_ENTRY_TEXT = (("__entry_text_start", "__entry_text_end"), ("__irqentry_text_start", "__irqentry_text_end"))


def symbol_range(prog: Program, first: str, last: str) -> Optional[tuple[int, int]]:
    """Return the addresses of two symbols, or None if they are missing or make no range."""
    try:
        start, end = int(prog.symbol(first).address), int(prog.symbol(last).address)
    except LookupError:
        return None
    return (start, end) if start < end else None


@cached
def kernel_code(kernel: Kernel) -> KernelCode:
    """Return where the kernel's code is. It is the same object until the kernel has run."""
    from drgn import Architecture, FaultError

    arm = architecture(kernel.prog) == Architecture.AARCH64
    return KernelCode(kernel.prog, Pages(kernel.prog.read, FaultError), "aarch64" if arm else "x86_64")


def _format(prog: Program) -> Optional[orc.Format]:
    """Return where the flags of ORC entries are, from debug information, or None."""
    try:
        entry = prog.type("struct orc_entry")
    except LookupError:
        return None

    def bit(name: str) -> Optional[int]:
        """Return the position of a member within the flags, or None."""
        return int(entry.member(name).bit_offset) - 32 if entry.has_member(name) else None

    kind = bit("type")
    if kind is None or entry.size != 6:
        return None
    return orc.Format(kind, entry.member("type").bit_field_size or 0, bit("end"), bit("signal"), ())


def _vmlinux(prog: Program, with_orc: bool) -> Iterator[Text]:
    """Yield the texts of vmlinux: the text proper, and the initialization code."""
    places = symbol_range(prog, "__start_orc_unwind_ip", "__stop_orc_unwind_ip")
    entries = symbol_range(prog, "__start_orc_unwind", "__stop_orc_unwind")
    for first, last in (("_stext", "_etext"), _INIT_TEXT):
        found = symbol_range(prog, first, last)
        if found is None:
            continue
        table = None
        if with_orc and places and entries:
            count = min((places[1] - places[0]) // 4, (entries[1] - entries[0]) // 6)
            table = orc.Table(places[0], entries[0], count, *found)
        yield Text(*found, "", table)


def _modules(prog: Program, with_orc: bool) -> list[Text]:
    """Return the texts of modules."""
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
        pass  # keep the modules read so far
    return texts


def _module_text(module: Object) -> Iterator[tuple[int, int]]:
    """Yield (address, size) of the module's code.

    Since 6.4 there is an array of memory by kind. Before there were two layouts.
    """
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
