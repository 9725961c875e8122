"""Show the allocation record of a slab object with its stack."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Command
from dmods.commands._records import CALLER_ARGUMENTS, HEAD
from dmods.report import Report
from drgnext.commands._slabs import address_asked, audit, callers_asked, objects_of, record_named
from drgnext.commands.bufctl import ADDRESS
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.tracks import Tracks


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the record with its stack."""
    slabs = objects_of(kernel)
    tracks = Tracks(slabs)
    record = record_named(slabs, tracks, address_asked(kernel, args.address))
    tables = list(audit(slabs, tracks, callers_asked(kernel, args), record))
    return Report(tables, notes=tracks.notes)


COMMAND = Command(
    name="bufctl_audit",
    summary="the record of a slab object with its stack, in mdb's layout",
    description=(
        "Needs slub_debug=U on the kernel's command line. TIMESTAMP is in ns since the boot. THREAD is the pid. The\n"
        "record of a free object is that of its last free; JSON also has who had allocated the object."
    ),
    run=run,
    tables=(HEAD,),
    arguments=(*CALLER_ARGUMENTS, ADDRESS),
    requires=(KERNEL,),
    examples=(("bufctl_audit 0xffff888003214090", "what findleaks shows as BUFCTL"),),
)
