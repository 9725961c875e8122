"""Tell whether the kernel had died when it was dumped. Its log may be lost, and a lost log proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.crash.bare_log import crash_time

if TYPE_CHECKING:
    from drgnext.kernel.crash.klog import PanicLog
    from drgnext.kernel.crash.records import Record

#: Sentences for where the log has no message of the death, by what has_died() returns.
SENTENCES = {
    True: "the kernel had crashed when the dump was taken; the log in the dump does not say why",
    False: "the kernel had not panicked when the dump was taken",
    None: "not known: the dump lacks what says whether the kernel had panicked",
}
_NO_CPU = -1  # PANIC_CPU_INVALID (linux/panic.h)


def has_died(
    told: PanicLog,
    info: dict[str, str],
    records: Sequence[Record],
    whole: bool,
    panic_cpu: Optional[int] = None,
) -> Optional[bool]:
    """Return whether the kernel had died, or None if nothing in the dump says so.

    ``info`` is VMCOREINFO. The crash kernel's start puts a time there, and nothing else does (crash_save_vmcoreinfo).
    ``records`` are those of the log; with ``whole``, all of them could be read. ``panic_cpu`` is the kernel's variable
    of that name, None if it is not known.
    """
    if told.message is not None or told.panic is not None or crash_time(info) is not None:
        return True
    if panic_cpu is not None:
        return panic_cpu != _NO_CPU
    return False if whole and records else None
