"""A line of the kernel's log."""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple

#: In a caller: the line was not printed by a task, and the rest is the number of the CPU (printk_caller_id()).
NO_TASK = 0x80000000


class Record(NamedTuple):
    """A line of the log, with its time since boot in seconds.

    ``caller`` is the thread that printed it, or NO_TASK and a CPU. ``level`` is that of syslog(3), 0 for emergencies.
    Both are None where the log does not have them. Lines that programs wrote (/dev/kmsg) have another facility than 0.
    ``task`` is the name of the task that ran then, "" where the log does not have it (7.0 can, with
    CONFIG_PRINTK_EXECUTION_CTX).
    """

    time: float
    text: str
    caller: Optional[int] = None
    level: Optional[int] = None
    facility: int = 0
    task: str = ""

    @property
    def who(self) -> str:
        """Return who printed the line: "T1 init" for a task, "C0" for a CPU in an interrupt, "" if nothing says it."""
        if self.caller is None:
            return self.task
        number = f"C{self.caller & ~NO_TASK}" if self.caller & NO_TASK else f"T{self.caller}"
        return f"{number} {self.task}".rstrip()
