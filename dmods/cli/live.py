"""Pictures of a live process for a command: one, or several for a command that compares."""

from __future__ import annotations

import argparse
import os
import sys
import time

from dmods.base.progress import Progress
from dmods.cli.frontend import say
from dmods.corefile.live.picture import open_process
from dmods.corefile.target import CoreFile
from dmods.errors import UserError

_USUAL_SECONDS, _USUAL_TIMES = 60.0, 3


def pictures(args: argparse.Namespace) -> CoreFile:
    """Return the process that ``args.process`` names as it is now; of several pictures, the last.

    The earlier ones become ``args.earlier``. Raises UserError where there can be none.
    """
    first = open_process(args.process, args.exe, args.sysroot)
    every, times = getattr(args, "every", None), getattr(args, "times", None)
    if not hasattr(args, "every") or (args.base and every is None and times is None):
        return first
    every, times = every or _USUAL_SECONDS, times or _USUAL_TIMES
    taken, began = [first], time.monotonic()
    while len(taken) < times:
        say(f"note: picture {len(taken)} of {times} of process {args.process}; the next in {every:g} s", sys.stderr)
        if not _wait(args.process, began + len(taken) * every):
            break
        try:
            taken.append(open_process(args.process, args.exe, args.sysroot))
        except UserError:
            if os.path.exists(f"/proc/{args.process}"):
                raise
            break
    if len(taken) == 1 and not args.base:
        raise UserError(f"process {args.process} ended before its second picture", "--every SECONDS: a shorter time")
    if len(taken) < times:
        say(f"note: process {args.process} ended after picture {len(taken)} of {times}", sys.stderr)
    *args.earlier, last = taken
    if args.hours is None and not args.base:
        args.hours = max(every, time.monotonic() - began) / 3600
    return last


def _wait(pid: int, until: float) -> bool:
    """Wait, while the process is there. Return whether it still is."""
    with Progress("waiting for the next picture") as bar:
        while (rest := until - time.monotonic()) > 0:
            if not os.path.exists(f"/proc/{pid}"):
                return False
            bar.update(0, 0)
            time.sleep(min(rest, 0.5))
    return True
