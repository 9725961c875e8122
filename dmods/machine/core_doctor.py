"""Findings about a core: what commands need and the core lacks, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dmods.corefile.context import crash_context
from dmods.machine.absent import absences
from dmods.machine.before_crash import context_remarks
from dmods.machine.doctor import Remark

if TYPE_CHECKING:
    from dmods.target import Module, Target

_MOST = 8  # missing files that are named one by one


def core_findings(target: Target) -> Iterator[Remark]:
    """Yield findings about the process, its program and libraries, its memory in the core, and its allocators."""
    yield _process(target)
    # What is known of a live process is said where its core is foretold.
    yield from context_remarks(crash_context(target) if target.path is not None else None)
    yield from _files(target)
    target.image()  # this adds the rest of the notes
    missing = absences(target)
    for each in missing:
        yield Remark("not in the core", str(each), each.help)
    if target.path and not missing:
        yield Remark("memory", "all memory that the process could write is in the core")
    yield from _heap(target)


def _process(target: Target) -> Remark:
    from dmods.process import signals

    threads = target.threads()
    signal = threads[0].signal if threads else None
    end = f"died of {signals.describe(signal)}" if signal and signals.is_deadly(signal) else "was alive"
    end = end if threads else "the core does not say how it ended"
    what = f"{target.path or target.pid}: {target.arch.name}, {_counted(len(threads), 'thread')}, {end}"
    return Remark("core" if target.path else "process", what)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _files(target: Target) -> Iterator[Remark]:
    """Yield whether the program and its libraries are on this machine, are the same files, and have symbols."""
    modules = [module for module in target.modules() if module.path != "[vdso]"]
    program = next((module for module in modules if module.path == target.executable), None)
    if program is not None and program.file is None:
        yield Remark("program", _absent(program), f"--exe FILE{_by_build_id(program)}")
    elif program is not None:
        yield Remark("program", program.file or "", _problem(program, program.file or ""))
        if target.lookup("main") is None:
            yield Remark(
                "symbols", "the program is stripped: most of its functions have no name",
                f"its debug symbols below /usr/lib/debug{_debug_by_build_id(program)}",
            )  # fmt: skip
    libraries = [module for module in modules if module is not program]
    lost = [module for module in libraries if module.file is None]
    if libraries and not lost:
        yield Remark("libraries", f"all {len(libraries)} are here")
    for module in lost[:_MOST]:
        yield Remark("library", _absent(module), f"--sysroot DIR{_by_build_id(module)}")
    if len(lost) > _MOST:
        yield Remark("library", f"{len(lost) - _MOST} more are not here", "--sysroot DIR: a copy of that machine's /")


def _absent(module: Module) -> str:
    return f"{module.path}: {_problem(module, module.path) or 'not here'}"


def _problem(module: Module, path: str) -> str:
    """Return what is wrong with the module's file, without the path that stands before it."""
    problem = module.problem or ""
    return problem[len(path) :].lstrip() if problem.startswith(f"{path} ") else problem


def _by_build_id(module: Module) -> str:
    return f"; debuginfod-find executable {module.build_id} gets it where a server has it" if module.build_id else ""


def _debug_by_build_id(module: Module) -> str:
    if not module.build_id:
        return ""
    place = f".build-id/{module.build_id[:2]}/{module.build_id[2:]}.debug"
    return f", as {place} (a package -dbgsym or -debuginfo; or debuginfod-find debuginfo {module.build_id})"


def _heap(target: Target) -> Iterator[Remark]:
    """Yield which allocators have heaps in the core, and whether it has records of who allocated what."""
    from dmods.allocators.unwalked import unwalked_heap_notes
    from dmods.heap.mapping_kinds import other_anonymous_bytes
    from dmods.heap.no_heap import no_heap
    from dmods.heap.survey import survey
    from dmods.records.sources import allocation_records

    found = survey(target)
    yield Remark("heap", ", ".join(heap.summary for heap in found.heaps) or no_heap(target))
    walked = [heap.allocator for heap in found.heaps]
    for note in (*found.notes, *unwalked_heap_notes(target, walked, partial(other_anonymous_bytes, target))):
        yield Remark("note", note)
    recordings = allocation_records(target).recordings
    for recording in recordings:
        yield Remark("records", f"who allocated what, written by {recording.name}")
    if not recordings:
        yield Remark(
            "records", "the core has no records of who allocated what", "for callers in findleaks: dmods run -- PROG"
        )
