"""Find the records of a process: the auditor's, and those that allocators keep themselves."""

from __future__ import annotations

from dmods.allocators.directory import allocators
from dmods.base.cached import cached
from dmods.errors import UserError
from dmods.records.auditor import find_auditor
from dmods.records.model import Records
from dmods.target import Target

HOW_TO_RECORD = (
    "next time start the program with `dmods run -- PROG ARGS...`: the auditor then records every allocation"
)
HOW_TO_LOG = "a log keeps who freed what: `dmods run --audit audit,log=1000000 -- PROG ARGS...`"


@cached
def allocation_records(target: Target) -> Records:
    """Return the allocation records of the target: found once for each state of it, read when first asked for."""
    # Each finds the root of its recorder and reads no more than that.
    sources = (find_auditor, *(one.recording for one in allocators() if one.recording is not None))
    recordings = (source(target) for source in sources)
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
