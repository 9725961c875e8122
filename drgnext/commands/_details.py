"""The tables and pictures that the HTML report of `triage` has of a kernel: what other commands say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Optional

from dmods.command import KERNEL, find_command
from dmods.errors import UserError
from dmods.profile import flame
from dmods.profile.view import View
from dmods.report import Report
from dmods.triage.details import ROWS, Part
from drgnext.commands._slabs import objects_of
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.profile import from_tracks

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel


def kernel_parts(kernel: Kernel) -> list[Part]:
    """Return the parts, in the order of the page."""
    top = ["--top", str(ROWS)]
    return [
        _part(kernel, "Registers and stack of the death", "panicinfo"),
        _part(kernel, "Memory by kind of page", "memstat", "-v"),
        _part(kernel, "Memory as /proc/meminfo has it", "meminfo"),
        _part(kernel, "Slab caches", "kmastat"),
        _part(kernel, "Leaked slab objects", "findleaks"),
        Part("Callers that hold slab objects, as a flame graph", "profile", partial(_callers, kernel)),
        _part(kernel, "Memory cgroups", "memcgs"),
        _part(kernel, "Processes", "ps", *top),
        _part(kernel, "Tasks by stack", "stacks", "-n", "40"),
        _part(kernel, "Locks that tasks wait for", "locks"),
        _part(kernel, "Run queues", "runq"),
        _part(kernel, "Sockets", "sockets"),
        _part(kernel, "Requests in flight", "inflight"),
        _part(kernel, "Disks and their layout", "disks"),
        _part(kernel, "Mounts", "mounts"),
        _part(kernel, "Network devices", "netdev"),
        _part(kernel, "Swap", "swapinfo"),
        _part(kernel, "The end of the kernel's log", "dmesg", "-n", "400"),
    ]


def _part(kernel: Kernel, title: str, name: str, *words: str) -> Part:
    def make() -> Report:
        command = find_command(name, KERNEL)
        return command.run(kernel, command.parser().parse_args(list(words)))

    return Part(title, " ".join([name, *(word for word in words if word == "-v")]), make)


def _callers(kernel: Kernel) -> Optional[str]:
    """Return the picture of who allocated the slab objects in use; None without slub_debug=U."""
    try:
        profile = from_tracks(kernel, objects_of(kernel), KernelCallers(kernel, None, False, lines=True))
    except UserError:
        return None
    return flame.embedded(View(profile))
