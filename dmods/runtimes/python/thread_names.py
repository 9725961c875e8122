"""The names that programs give to their threads in Python.

The outermost Python frame of a thread that ``threading`` has started is a method of its Thread (Lib/threading.py), so
its first variable is the Thread. Until 3.13 the kernel does not learn the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.runtimes.python.attributes import attributes
from dmods.runtimes.python.frame_locals import frame_locals
from dmods.runtimes.python.runtime import Python, PythonFrame

_METHODS = ("_bootstrap", "_bootstrap_inner")
_FILE, _SELF, _NAME = "threading.py", "self", "_name"
_MOST = 200  # characters


def thread_name(python: Python, frames: Sequence[PythonFrame]) -> Optional[str]:
    """Return the name of the thread with these frames, or None: it is the first thread, or not of ``threading``."""
    outermost = frames[-1] if frames else None
    if outermost is None or outermost.code.name not in _METHODS or not outermost.code.file.endswith(_FILE):
        return None
    places = frame_locals(python, outermost.address, outermost.code.address)
    if places is None or _SELF not in places.names[:1]:
        return None
    value = python.objects.words.at(places.start) or 0
    name = attributes(python.objects, value & ~7).get(_NAME, 0)  # since 3.14 the lower bits are flags
    text = python.objects.text(name, _MOST)
    return text if text is not None and text.isprintable() and text else None
