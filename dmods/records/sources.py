"""Find the records of a process. A new source is one entry in `_SOURCES`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from dmods.base.cached import cached
from dmods.errors import UserError
from dmods.records.auditor import find_auditor
from dmods.records.jemalloc_profile import find_profile
from dmods.records.model import Recording, Records
from dmods.target import Target

HOW_TO_RECORD = (
    "next time start the program with `dmods run -- PROG ARGS...`: the auditor then records every allocation"
)
HOW_TO_LOG = "a log keeps who freed what: `dmods run --audit audit,log=1000000 -- PROG ARGS...`"

# Each finds the root of its recorder and reads no more than that.
_SOURCES: Sequence[Callable[[Target], Optional[Recording]]] = (find_auditor, find_profile)


@cached
def allocation_records(target: Target) -> Records:
    """Return the allocation records of the target: found once for each state of it, read when first asked for."""
    recordings = (source(target) for source in _SOURCES)
    return Records(recording for recording in recordings if recording is not None)


def require_records(target: Target, log: bool = False) -> Records:
    """Return the allocation records of the target.

    Raises UserError where the process has no records, and with `log` where nobody kept transactions.
    """
    records = allocation_records(target)
    if not records:
        raise UserError("no allocation records: the program did not run under the auditor", HOW_TO_RECORD)
    if log and not any(recording.log for recording in records.recordings):
        how = "next time: `dmods run --audit audit,log=100000 -- PROG ARGS...`"
        raise UserError("no transaction log: the auditor was not asked for one", how)
    return records
