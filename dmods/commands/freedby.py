"""The buffers that a thread freed."""

from __future__ import annotations

import argparse

from dmods import records
from dmods.command import Command
from dmods.commands.allocdby import THREAD, TOP, report, thread_meant
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    found = records.require(target, log=True)
    return report(target, found, "freedby", found.log(True, *thread_meant(target, found, args.thread)), args.top)


COMMAND = Command(
    name="freedby",
    summary="the buffers that a thread freed, newest first, as far as the transaction log goes back",
    description="BUFCTL is the entry of the log: `bufctl_audit` shows where it was freed, and where allocated.",
    run=run,
    arguments=(TOP, THREAD),
    requires=("userland", "audit"),
    examples=(("freedby 1607", "what thread 1607 freed"),),
)
