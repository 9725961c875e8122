"""The stacks of slab records in words, and the frame that each stack blames."""

from __future__ import annotations

import re
from typing import Any, Optional, cast

from dmods.process.shapes import Frame, frame_value
from dmods.records.callers import UNKNOWN, Callers, Place
from dmods.records.model import Stack
from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import CodeNames, Line

# The allocator's own functions, and what records the stack.
_FUNCTIONS = re.compile(
    r"^_*(do_)?(kv?[mz]alloc|kcalloc|kvcalloc|kmem_cache_|kmalloc_|slab_|allocate_slab|new_slab|alloc_from_pcs"
    r"|set_track|stack_depot_save|stack_trace_save|kasan_|kfree|kvfree|free_debug_processing|free_to_partial_list)"
)
# Functions that allocate for whoever calls them.
_WRAPPERS = re.compile(
    r"^_*(kmemdup|kstrn?dup|kv?asprintf|v?memdup_user|memdup_user|strndup_user|kv?realloc|krealloc|alloc_cpumask_var"
    r"|zalloc_cpumask_var|devm_k|devres_alloc|idr_alloc|kzalloc|kobject_create|sg_alloc_table|sg_kmalloc)"
)


class KernelCallers(Callers):
    """Names the frames of a kernel, and finds the caller in a stack.

    ``skip`` and ``all_frames`` are as in ``Callers``.
    """

    def __init__(
        self, kernel: Kernel, skip: Optional[re.Pattern[str]] = None, all_frames: bool = False, *, lines: bool = False
    ) -> None:
        from drgn import Architecture, FaultError

        super().__init__(cast(Any, None), skip, all_frames, lines=lines)
        prog = kernel.prog
        arm = prog.platform is not None and prog.platform.arch == Architecture.AARCH64
        memory = Pages(prog.read, FaultError)
        self._code = CodeNames(prog, KernelCode(prog, memory, "aarch64" if arm else "x86_64"), 4 if arm else 1)
        self._step = 4 if arm else 1

    def name(self, frame: Place) -> str:
        """Return ``module`function+offset``."""
        if frame not in self._names:
            self._names[frame] = self._code.describe(frame[0], self._inside(frame))
        return self._names[frame]

    def source(self, frame: Place) -> list[Any]:
        """Return []: the lines of a kernel are in ``text_lines`` and in JSON."""
        return []

    def text_lines(self, frame: Place) -> list[str]:
        """Return a frame as lines of text. With ``lines``, its line of source follows."""
        lines = self._code.lines(self._inside(frame)) if self.lines else []
        return [f"{self.name(frame)} ({lines[0]})" if lines else self.name(frame)]

    def function(self, frame: Place) -> Optional[int]:
        """Return where the frame's function begins, or None where no symbol is known."""
        found = self._code.function(self._inside(frame))
        return found.start if found is not None else None

    def function_name(self, frame: Place) -> str:
        """Return the frame's function without the offset."""
        found = self._code.function(self._inside(frame))
        if found is None:
            return self.name(frame)
        return f"{found.module}`{found.name}" if found.module else found.name

    def library(self, frame: Place) -> str:
        """Return the name of the module that holds the frame: "vmlinux" for the kernel itself, or UNKNOWN."""
        found = self._code.function(self._inside(frame))
        return UNKNOWN if found is None else found.module or "vmlinux"

    def line(self, frame: Place) -> str:
        """Return "file.c:42", or "" where it is not known."""
        lines = self._code.lines(self._inside(frame))
        return str(lines[0]) if lines else ""

    def _value(self, frame: Place) -> Frame:
        value = self._values.get(frame)
        if value is None:
            found = self._code.function(self._inside(frame))
            module = found.module if found is not None and found.module else None
            value = self._values[frame] = frame_value(frame[0], self.name(frame), module, frame[1])
        return value

    def _bare_name(self, frame: Place) -> str:
        found = self._code.function(self._inside(frame))
        return found.name if found is not None else ""

    def is_allocator(self, frame: Place) -> bool:
        """Return whether the frame belongs to the slab allocator itself, or to what records the stack."""
        return _FUNCTIONS.match(self._bare_name(frame)) is not None

    def _is_wrapper(self, frame: Place) -> bool:
        name = self._bare_name(frame)
        if not self._all_frames and _WRAPPERS.match(name):
            return True
        return self._skip is not None and bool(name) and self._skip.search(name) is not None

    def inside(self, frame: Place) -> int:
        """Return the address of the instruction that a frame is in."""
        return self._inside(frame)

    def lines_at(self, frame: Place) -> list[Line]:
        """Return the functions at a frame with their lines of source, innermost first; [] where they are not known."""
        return self._code.lines(self._inside(frame))

    def first_outside(self, stack: Stack) -> int:
        """Return how many frames belong to the allocator, from the innermost on. It is 0 where all of them do."""
        if self._all_frames:
            return 0
        return next((place for place, frame in enumerate(stack.frames) if not self.is_allocator(frame)), 0)

    def _inside(self, frame: Place) -> int:
        return frame[0] if frame[1] else frame[0] - self._step
