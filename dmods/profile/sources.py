"""Find the sources of a profile in a process, and open the profile of another core or file."""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional

from dmods.errors import UserError
from dmods.profile import pprof
from dmods.profile.from_go import find_go, from_go
from dmods.profile.from_gperftools import find_gperftools, from_gperftools
from dmods.profile.from_graph import from_graph
from dmods.profile.from_records import Details, from_recording
from dmods.profile.model import Profile
from dmods.records import mapped as mapped_source
from dmods.records.mapped import recorded_maps
from dmods.records.model import Recording
from dmods.records.sources import HOW_TO_RECORD, allocation_records
from dmods.target import Target

AUDITOR, JEMALLOC, GPERFTOOLS, GO, GRAPH = "auditor", "jemalloc", "gperftools", "go", "graph"
SAMPLES = "tcmalloc"  # its sampler's; GPERFTOOLS is the table of its heap profiler
MAPS = "maps"  # who mapped what: only where the user asks for it, because blocks lie in mappings
#: What --source takes, the best known first.
NAMES = (AUDITOR, JEMALLOC, SAMPLES, GPERFTOOLS, GO, GRAPH, MAPS)


def profile_of(
    target: Target, source: Optional[str] = None, details: bool = False, all_frames: bool = False
) -> Profile:
    """Return the profile of a process from the source of that name. Without one, records come before the graph.

    With `details`, each sample of records says whether its blocks leaked, their type and their owner. Raises UserError.
    """
    found = _sources(target, source, details, all_frames)
    if source is not None and source not in found:
        have = ", ".join(name for name in NAMES if name in found)
        how = mapped_source.HOW_TO_RECORD if source == MAPS else HOW_TO_RECORD
        raise UserError(f"the process has no records of {source}", f"--source takes {have} here; {how}")
    profile = found[source or next(name for name in NAMES if name in found)]()
    profile.mapped = [
        (piece.start, piece.end, piece.flags, piece.offset, piece.path or "") for piece in target.mappings()
    ]
    profile.notes.extend(note for note in target.notes if note not in profile.notes)
    return profile


def recorded_source(target: Target) -> Optional[str]:
    """Return the source that knows the callers, which `profile_of` takes by itself; None where only the graph is."""
    found = _sources(target, None, False, False)
    return next((name for name in NAMES if name in found and name != GRAPH), None)


def _sources(
    target: Target, source: Optional[str], details: bool, all_frames: bool
) -> dict[str, Callable[[], Profile]]:
    """Return what makes the profile of each source that the process has; of maps only where they are asked for."""
    found: dict[str, Callable[[], Profile]] = {}
    for recording in allocation_records(target).recordings:
        make = partial(_recorded, target, recording, details, all_frames)
        found.setdefault(recording.allocator or AUDITOR, make)
    table = find_gperftools(target) if source in (None, GPERFTOOLS) else None
    if table:
        found[GPERFTOOLS] = partial(from_gperftools, target, table)
    first = find_go(target)
    if first is not None:
        found[GO] = partial(from_go, target, first)
    mapped = recorded_maps(target) if source == MAPS else None
    if mapped is not None:
        found[MAPS] = partial(from_recording, target, mapped.recording, None, all_frames)
    found[GRAPH] = partial(from_graph, target)
    return found


def _recorded(target: Target, recording: Recording, details: bool, all_frames: bool) -> Profile:
    return from_recording(target, recording, Details.of(target) if details else None, all_frames)


def opened(path: str, core: Callable[[str], Target], source: Optional[str], details: bool, all_frames: bool) -> Profile:
    """Return the profile in a file of pprof, or that of another core, which `core` opens. Raises UserError."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "--base takes a core or a .pb.gz file") from None
    if packed:
        return pprof.read(path)
    return profile_of(core(path), source, details, all_frames)
