"""Reports of KFENCE: the kernel caught an access beyond an object or after its free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dmods.base.regex import regex
from dmods.finding import CERTAIN, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.crash.whole_log import read_log
from drgnext.kernel.slabs.objects import slab_objects
from drgnext.triage.facts import KernelFacts

# The first line of a report (mm/kfence/report.c, kfence_report_error()).
_REPORT = regex(r"^BUG: KFENCE: (.+?) in (\S+)")
_NAMED = 3


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield a finding for the reports in the log, and one for objects beside which something was written."""
    records, _notes = read_log(facts.kernel.prog)
    reports = Counter(found.groups() for record in records if (found := _REPORT.match(record.text)))
    guarded = slab_objects(facts.kernel).guarded
    yield Measured(f"{sum(reports.values())} reports of KFENCE, {guarded.in_use} objects guarded by it")
    if reports:
        named = "; ".join(f"{what} in {where}" for (what, where), _count in reports.most_common(_NAMED))
        more = f", and {len(reports) - _NAMED} more" if len(reports) > _NAMED else ""
        yield Finding(
            "kfence-report",
            SERIOUS,
            CERTAIN,
            f"KFENCE reported {_times(sum(reports.values()))}: {named}{more}",
            "mend that function: the report in the log has the stacks of the access, the allocation and the free",
            next=("dmesg", "walk kfence"),
            weight=sum(reports.values()),
        )
    for cache, each in guarded.overwritten():
        assert cache.guarded is not None
        address, side = cache.guarded.address, "before" if each.at < cache.guarded.address else "behind"
        yield Finding(
            "kfence-overwritten",
            SERIOUS,
            CERTAIN,
            f"{len(each.found)} bytes {side} the object of {cache.name} at {address:#x} are overwritten. KFENCE has "
            "not reported that yet: it looks when the object is freed",
            "see who allocated the object: its users write beyond it",
            [Evidence(address, f"the object of {cache.name}")],
            (f"whatis {address:#x}", "slabcheck"),
        )


def _times(count: int) -> str:
    return "an invalid access" if count == 1 else f"{count} invalid accesses"


CHECK = Check(
    "kfence",
    "KFENCE reported an invalid access, or something was written beside an object that it guards",
    run,
    needs=("pages",),
    seconds=60,
)
