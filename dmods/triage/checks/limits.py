"""Limits of a process that its core shows: mappings, and a system call that failed for want of descriptors.

A core has neither rlimits nor a table of descriptors. It has the mappings, and `errno` of the thread that died. Who
keeps the core (systemd, apport, abrt) may have both. /proc has both of a live process.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator

from dmods.base.raw_names import printable
from dmods.corefile.context import crash_context
from dmods.corefile.crash_handlers.common import LIVE
from dmods.finding import LIKELY, POSSIBLE, SERIOUS, Check, Evidence, Finding, Measured, Said
from dmods.process.stdio import open_files
from dmods.triage.facts import ProcessFacts

#: vm.max_map_count, unless it was raised (DEFAULT_MAX_MAP_COUNT, include/linux/mm.h).
MOST_MAPPINGS = 65530
_NEAR = 0.95
_FILES = {errno.EMFILE: "RLIMIT_NOFILE (ulimit -n)", errno.ENFILE: "fs.file-max"}


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield mappings near the default limit, and descriptors that were all in use."""
    count = len(facts.target.mappings())
    files = open_files(facts.target)
    last = max((each.descriptor for each in files), default=None)
    opened = f"; the highest descriptor of stdio is {last}" if last is not None else ""
    yield Measured(f"{count:,} mappings of {MOST_MAPPINGS:,}, the default limit{opened}")
    if _NEAR * MOST_MAPPINGS <= count <= MOST_MAPPINGS + 1:  # with more, the limit was raised
        yield Finding(
            "limit",
            SERIOUS,
            LIKELY,
            f"the process has {count:,} mappings, and may have {MOST_MAPPINGS:,} (vm.max_map_count): the next mmap() "
            "fails with ENOMEM, although memory is free",
            "find who maps so many small pieces (or changes the protection of single pages), or raise vm.max_map_count",
            next=("maps",),
            weight=count,
            alternative="the limit was raised on that machine: a core does not say",
        )
    yield from _descriptors(facts)
    for number in facts.errnos & _FILES.keys():
        yield Finding(
            "limit",
            SERIOUS,
            LIKELY if last is not None and last >= 1000 else POSSIBLE,
            f"the last system call that failed in the thread that died had no descriptor left "
            f"({errno.errorcode[number]}){opened}",
            f"find what is not closed, or raise {_FILES[number]}",
            [Evidence(each.address, f"stdio's file with descriptor {each.descriptor}") for each in files[:1]],
            ("panicinfo",),
            alternative="errno is old: the program went on after that call, and died of something else",
        )


def _descriptors(facts: ProcessFacts) -> Iterator[Said]:
    """Yield that most descriptors were in use, where open files and limits are known beside the memory."""
    kept = crash_context(facts.target)
    files = kept.open_files if kept is not None else {}
    most = kept.limit("Max open files") if kept is not None else None
    if kept is None or not files or most is None:
        return
    yield Measured(f"{len(files):,} open files of {most:,}, says {kept.keeper}")
    if len(files) >= _NEAR * most:
        kinds = Counter("" if facts.private else re.sub(r"\d+", "N", name)[:60] for name in files.values())
        often, count = kinds.most_common(1)[0]
        lives = kept.keeper == LIVE
        had = (
            f"has {len(files):,} open files, and may"
            if lives
            else f"had {len(files):,} open files at its death, and could"
        )
        yield Finding(
            "limit",
            SERIOUS,
            LIKELY,
            f"the process {had} have {most:,} (RLIMIT_NOFILE)"
            + (f": {count:,} of them are {printable(often)}" if often else ""),
            "find what is not closed, or raise RLIMIT_NOFILE (ulimit -n)",
            next=("panicinfo",),
            weight=len(files),
            alternative="it needs so many" + ("" if lives else ", and died of something else"),
        )


CHECK = Check(
    "limits",
    f"{_NEAR:.0%} of the mappings that a process may have by default; or errno says that no descriptor was left",
    run,
    needs=("cause",),
    seconds=30,
)
