"""``dmods triage DIR...``: many dumps into a database, and one report about all of them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from dmods.cli.frontend import say
from dmods.errors import UsageError, UserError
from dmods.modules.localfiles import why_no_elf
from dmods.output.render import render
from dmods.output.stdout import allow_no_output
from dmods.triage.fleet.examine import SECONDS, Limits
from dmods.triage.fleet.push import Pusher
from dmods.triage.fleet.receive import LIMIT, become_user, prepare, receive
from dmods.triage.fleet.report import Fleet, fleet_html, fleet_report
from dmods.triage.fleet.run import jobs_here, pool, triage_all
from dmods.triage.fleet.store import Store
from dmods.triage.options import REDACT, as_json, write_file


def run(words: Sequence[str]) -> int:
    """Do what the words say. Returns the exit status."""
    args = _parser().parse_args(list(words))
    if args.report is not None:
        if args.dumps or args.db:
            raise UsageError("--report reads a database and looks at no dump", "dmods triage --report FILE.sqlite")
        store = Store(args.report, make=False)
        try:
            _tell(store, args.report, args)
        finally:
            store.close()
        return 0
    if not args.dumps:
        raise UsageError("no dump is named", "dmods triage DIR... --db triage.sqlite")
    if "-" in args.dumps:
        args.dumps = [_received(args) if name == "-" else name for name in args.dumps]
    if args.push is not None and args.redact:
        raise UsageError("--redact and --push exclude each other", "a heap profile has names of threads and types")
    pusher = Pusher(args.push) if args.push is not None else None
    for name in args.symbols:
        reason = why_no_elf(name)
        if reason is not None:
            raise UserError(f"-s {name}: {reason}", "give vmlinux or a module, with debug information")
    store = Store(args.db or ":memory:")
    try:
        with pool(args.jobs or jobs_here(), args.dask) as (executor, at_once):
            limits = Limits(args.seconds or SECONDS, symbols=tuple(map(os.path.abspath, args.symbols)))
            done = triage_all(
                args.dumps, store, executor, at_once, limits=limits, redact=args.redact, again=args.retry, pusher=pusher
            )
        known = f", {done.known:,} known already" if done.known else ""
        failed = f", {done.failed:,} of them without a report" if done.failed else ""
        say(f"dmods: {done.new:,} new dumps{failed}{known}", sys.stderr)
        if pusher is not None:
            _tell_pushed(pusher)
        _tell(store, args.db or ", ".join(args.dumps), args)
    finally:
        store.close()
    return 0


def _tell_pushed(pusher: Pusher) -> None:
    failed = f"; {pusher.failed:,} were not: {pusher.reason}" if pusher.failed else ""
    say(f"dmods: {pusher.sent:,} heap profiles were sent to {pusher.url}{failed}", sys.stderr)


def _received(args: argparse.Namespace) -> str:
    """Return the path of the dump that standard input gives. Root's rights are given up before a byte is read."""
    if not args.db:
        raise UsageError("`dmods triage -` needs a database", "dmods triage - --db FILE.sqlite")
    folder = args.spool or os.path.dirname(os.path.abspath(args.db))
    allow_no_output()  # the kernel starts its helper without
    prepare(folder, args.user)
    become_user(args.user)
    about = {name: getattr(args, name) for name in ("exe", "pid", "time", "host", "version")}
    return receive(sys.stdin.buffer, folder, about, args.limit or LIMIT)


def _tell(store: Store, name: str, args: argparse.Namespace) -> None:
    fleet = Fleet(store)
    if not fleet.dumps and not fleet.failed:
        raise UserError(f"{name} has no dump", "dmods triage DIR... --db FILE.sqlite puts some in")
    if args.output is not None:
        if not args.output.endswith((".html", ".htm", ".json")):
            raise UsageError(f"the name {args.output} says no form", "end it with .html or .json")
        json = as_json(fleet_report(fleet), None)
        write_file(args.output, json if args.output.endswith(".json") else fleet_html(fleet, store, name, json))
    render(fleet_report(fleet), "triage", None, args.json, sys.stdout, sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dmods triage",
        description="Look at every dump in the folders, keep what is found in a database, and say what they have in "
        "common. A dump that is in the database is not looked at again: a run that was stopped continues where it was.",
    )
    parser.add_argument("dumps", nargs="*", metavar="DIR", help="folders with dumps, or dumps")
    parser.add_argument("--db", metavar="FILE", help="the database (SQLite); it is made if it does not exist")
    parser.add_argument("--report", metavar="DB", help="only say what the database knows")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report to FILE.html or FILE.json as well")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("--jobs", type=_positive, metavar="N", help="dumps at once (one for each processor)")
    parser.add_argument("--dask", metavar="ADDRESS", help="let a Dask cluster do it: tcp://HOST:8786")
    parser.add_argument("--seconds", type=float, metavar="N", help="the time for one dump (600)")
    parser.add_argument("--retry", action="store_true", help="look again at dumps that had no report")
    parser.add_argument("--push", metavar="URL", help="POST the heap profile of each new dump (Pyroscope's /ingest)")
    pipe = parser.add_argument_group("a dump from standard input", "`dmods triage - --db FILE`, as core_pattern's pipe")
    pipe.add_argument("--spool", metavar="DIR", help="where the dump is kept (beside the database)")
    pipe.add_argument("--limit", type=_size, metavar="SIZE", help="keep at most this much of it, for example 500M (8G)")
    pipe.add_argument("--user", default="nobody", help="the user that root becomes before it reads the dump (nobody)")
    for name, letter in (("exe", "E"), ("pid", "P"), ("time", "t"), ("host", "h")):
        pipe.add_argument(f"--{name}", metavar=name.upper(), help=f"%%{letter} of core_pattern")
    pipe.add_argument("--version", help="the version of the program")
    parser.add_argument(
        "-s", "--symbols", metavar="FILE", action="append", default=[], help="for kernels: vmlinux or a module"
    )
    parser.add_argument("--redact", action="store_true", help=REDACT)
    return parser


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not a size: for example 500M")
    return int(found[1]) << 10 * (" KMGT".index(found[2]) if found[2] else 0)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 4096")
    return int(text)
