"""The stacks of slab records in words, and the frame that each stack blames."""

from __future__ import annotations

import re
from typing import Any, Optional, cast

from dmods.base.regex import regex
from dmods.process.shapes import Frame, frame_value
from dmods.records.callers import UNKNOWN, Callers, Place
from dmods.records.model import Stack
from drgnext.kernel.dump.machine import architecture
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.freed_code import FreedFrame
from drgnext.kernel.stacks.code import kernel_code
from drgnext.kernel.stacks.code_names import CodeNames, Function, Line

# The allocator's own functions, and what records the stack.
_FUNCTIONS = regex(
    r"^_*(do_)?(kv?[mz]alloc|kcalloc|kvcalloc|kmem_cache_|kmalloc_|slab_|allocate_slab|new_slab|alloc_from_pcs"
    r"|kfence_|set_track|stack_depot_save|stack_trace_save|kasan_|kfree|kvfree|free_debug_processing|free_to_partial_list)"
)
# Functions that allocate for whoever calls them.
_WRAPPERS = regex(
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
        from drgn import Architecture

        super().__init__(cast(Any, None), skip, all_frames, lines=lines)
        self._step = 4 if architecture(kernel.prog) == Architecture.AARCH64 else 1
        self._code = CodeNames(kernel.prog, kernel_code(kernel), self._step)

    def name(self, frame: Place) -> str:
        """Return ``module`function+offset``."""
        if frame not in self._names:
            freed = isinstance(frame, FreedFrame)
            self._names[frame] = f"{frame[0]:#x}" if freed else self._code.describe(frame[0], self._inside(frame))
        return self._names[frame]

    def source(self, frame: Place) -> list[Any]:
        """Return []: the lines of a kernel are in ``text_lines`` and in JSON."""
        return []

    def text_lines(self, frame: Place) -> list[str]:
        """Return a frame as lines of text. With ``lines``, its line of source follows."""
        lines = self.lines_at(frame) if self.lines else []
        return [f"{self.name(frame)} ({lines[0]})" if lines else self.name(frame)]

    def function(self, frame: Place) -> Optional[int]:
        """Return where the frame's function begins, or None where no symbol is known."""
        found = self._function(frame)
        return found.start if found is not None else None

    def function_name(self, frame: Place) -> str:
        """Return the frame's function without the offset."""
        found = self._function(frame)
        if found is None:
            return self.name(frame)
        return f"{found.module}`{found.name}" if found.module else found.name

    def library(self, frame: Place) -> str:
        """Return the name of the module that holds the frame: "vmlinux" for the kernel itself, or UNKNOWN."""
        found = self._function(frame)
        return UNKNOWN if found is None else found.module or "vmlinux"

    def line(self, frame: Place) -> str:
        """Return "file.c:42", or "" where it is not known."""
        lines = self.lines_at(frame)
        return str(lines[0]) if lines else ""

    def _value(self, frame: Place) -> Frame:
        value = self._values.get(frame)
        if value is None:
            found = self._function(frame)
            module = found.module if found is not None and found.module else None
            value = self._values[frame] = frame_value(frame[0], self.name(frame), module, frame[1])
        return value

    def _bare_name(self, frame: Place) -> str:
        found = self._function(frame)
        return found.name if found is not None else ""

    def is_skipped(self, frame: Place) -> bool:
        """Return whether CALLER passes over the frame. Of code that was freed it is not known."""
        return not isinstance(frame, FreedFrame) and super().is_skipped(frame)

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
        return [] if isinstance(frame, FreedFrame) else self._code.lines(self._inside(frame))

    def first_outside(self, stack: Stack) -> int:
        """Return how many frames belong to the allocator, from the innermost on. It is 0 where all of them do."""
        if self._all_frames:
            return 0
        return next((place for place, frame in enumerate(stack.frames) if not self.is_allocator(frame)), 0)

    def _function(self, frame: Place) -> Optional[Function]:
        """Return the frame's function, or None where it is not known or was freed."""
        return None if isinstance(frame, FreedFrame) else self._code.function(self._inside(frame))

    def _inside(self, frame: Place) -> int:
        return frame[0] if frame[1] else frame[0] - self._step
