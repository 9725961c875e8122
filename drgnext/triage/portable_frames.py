"""The frames of a dead kernel as other machines see them: by names, for addresses and offsets differ."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.triage.portable_frames import Place

# Functions that say that the kernel dies, and not why.
_DYING = (
    *("panic", "vpanic", "die", "__die", "oops_", "crash_", "__crash_", "machine_kexec", "asm_", "exc_", "el1"),
    *("page_fault_oops", "bad_area", "__bad_area", "no_context", "do_user_addr_fault", "handle_page_fault"),
    *("handle_bug", "nmi_panic", "watchdog_", "dump_stack", "__warn", "report_bug", "do_trap", "do_error_trap"),
    *("make_task_dead", "do_mem_abort"),
)


def kernel_places(shown: Sequence[str]) -> list[Place]:
    """Return the frames, without those that panic() itself called: it waits in a loop until the machine ends."""
    functions = [name.rpartition("`")[2].partition("+")[0] for name in shown]
    ends = [index for index, function in enumerate(functions) if function in ("panic", "vpanic")]
    return [kernel_place(name) for name in shown[ends[-1] if ends else 0 :]]


def kernel_place(shown: str) -> Place:
    """Return a frame as other machines see it. ``shown`` is ``module`function+0x12``, or the kernel's own form."""
    module, _tick, rest = shown.rpartition("`")
    function = rest.partition("+")[0].strip()
    known = bool(function) and not function.startswith("0x")
    return Place(module or "vmlinux", None, None, function if known else None, (), function.startswith(_DYING))
