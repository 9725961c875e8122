"""arm64: from a frame to its caller by the chain of frame records (x29), as arch/arm64/kernel/stacktrace.c does.

All kernel code keeps these records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from dmods.base.dataclass import replace
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.frames import Frame, Step
from drgnext.kernel.stacks.returns import ReturnAddresses
from drgnext.kernel.stacks.traps import CodeMap
from drgnext.kernel.stacks.traps.aarch64 import Aarch64, code_address


class RecordUnwinder:
    """An unwinder that follows frame records, which are (caller's x29, return address).

    A function that trapped may not have made its record yet. Then x30 says who called it.
    """

    def __init__(
        self,
        memory: Memory,
        code: CodeMap,
        machine: Aarch64,
        function: Callable[[int], Optional[tuple[str, int, str]]],
        returns: Optional[ReturnAddresses] = None,
    ) -> None:
        """Prepare the unwinder.

        ``function`` returns a value that identifies the function at an address (:meth:`CodeNames.function`).
        """
        self._memory = memory
        self._code = code
        self._machine = machine
        self._function = function
        self._returns = returns

    def step(self, frame: Frame, task: int) -> Step:
        """Return the step from a frame to its caller."""
        record = frame.registers.get("x29")
        if record is None:
            return Step(end="unreadable")
        if frame.exact:
            caller = self._by_link_register(frame, record, task)
            if caller is not None:
                return Step(caller)
        trap = self._machine.checked(self._memory, record)
        if trap is not None:
            return Step(trap=replace(trap, entry=frame.pc))
        return self._by_record(record, task)

    def _by_record(self, record: int, task: int) -> Step:
        """Return the caller that the frame record at ``record`` describes."""
        outer, back = self._memory.word(record), self._memory.word(record + 8)
        if not record or (outer, back) == (0, 0):
            return Step(end="outermost")
        if outer is None or back is None:
            return Step(end="unreadable")
        if record & 7:
            return Step(end="not increasing")
        # Tracers know the caller's frame record (since 5.16), or where its sp was.
        pc, through = self._true(code_address(back), task, (outer, record, record + 8, record + 16))
        if through and not pc:
            return Step(end="replaced")
        registers = {"x29": outer, "pc": pc, "sp": record + 16}
        return Step(Frame(pc, record + 16, False, "unwind", registers, through=through))

    def _by_link_register(self, frame: Frame, record: int, task: int) -> Optional[Frame]:
        """Return the caller of a function that has not made its frame record, or None.

        x30 must lead to code outside the function: inside, it is left over from a call that the function made. It must
        also differ from the return address in the record.
        """
        link = frame.registers.get("x30")
        if link is None:
            return None
        link, through = self._true(code_address(link), task, (record,))
        saved = self._memory.word(record + 8)
        if not self._code.after_call(link) or (saved is not None and code_address(saved) == link):
            return None
        here = self._function(frame.pc)
        if here is not None and here == self._function(link - 4):
            return None
        registers = {name: value for name, value in frame.registers.items() if name not in ("pc", "x30")}
        found = "link register" if self._code.is_code(frame.pc) else "bad jump"
        return Frame(link, frame.sp, False, found, {**registers, "pc": link}, through=through)

    def _true(self, pc: int, task: int, places: tuple[int, ...]) -> tuple[int, str]:
        """Return (the true return address, the handler that has replaced it or ""). The address is 0 if not known."""
        through = self._returns.replaced_by(pc) if self._returns is not None else ""
        if not through or self._returns is None:
            return pc, ""
        return code_address(self._returns.true(task, pc, places) or 0), through
