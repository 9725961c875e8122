"""The memory that a process has mapped and never touched: it costs nothing yet."""

from __future__ import annotations

import os

from dmods import _engine
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.target import Target


@cached
def untouched(target: Target) -> _engine.Untouched:
    """Return the untouched memory among what the process can access: all of it that has no file, and what the dump has
    of the rest. Memory that a cut dump lacks is not among it.
    """
    parts = []
    for mapping in target.mappings():
        end = mapping.end if mapping.anonymous else mapping.start + mapping.dumped
        if mapping.flags != "---" and end > mapping.start:
            parts.append((mapping.start, end))
    parts = Ranges(target.missing).without(parts)
    whole = sum(end - start for start, end in parts)
    with Progress("looking for untouched pages") as bar:
        threads = min(4, os.cpu_count() or 1)
        return _engine.Untouched(
            target.image(), parts, target.knows_touched, threads, lambda done: bar.update(done, whole)
        )
