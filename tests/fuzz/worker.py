"""Run every command on one damaged core after the other.

Paths come on stdin. stdout has a line of JSON for each: how often a command ran, and what went wrong.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Callable, Optional

from dmods.command import command_names, find_command
from dmods.commands._records import address_of
from dmods.commands._walkers import WALKERS
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.heap.heap import find_heap
from dmods.machine import doctor
from dmods.records.sources import allocation_records
from fixtures import answers
from fixtures.heaps import glibc
from fixtures.limits import HANG_CPU

MEMORY = 3 << 30  # bytes of address space, the interpreter's and the threads' own included
SECONDS = 2 * HANG_CPU  # for all commands on one core of a megabyte: the undamaged one takes a second

FORMS = 2  # as text and as JSON

LINES: dict[str, tuple[tuple[str, ...], ...]] = {
    "findleaks": ((), ("-d", "-i", "-v")),
    "walk": (*((name,) for name in WALKERS), ("buf", "--size", "1..100")),
    "heapcheck": ((), ("-v",)),
    "malloc_stats": ((), ("--glibc",)),
    "whatis": (),
    "owners": ((), ("--by", "type"), ("--by", "size", "--top", "2")),
    "allocdby": (("victim",), ("1",)),
    "freedby": (("victim",),),
    "types": ((), ("--leaked",), ("--live",)),
    "maps": ((), ("-v",)),
    "umausers": ((), ("--source", "maps")),
    "profile": ((), ("--source", "maps"), ("peek", ".", "--source", "maps")),
    "growth": tuple(("{older}", "--by", key) for key in ("type", "size", "owner", "holder")),
}
# These commands get addresses after the other commands have run.
OF_ADDRESSES: dict[str, tuple[tuple[str, ...], ...]] = {
    "whatis": ((), ("--dump", "4096")),
    "retained": ((),),
    "pathto": (("--all",),),
    "whattype": ((),),
    "notype": ((),),
    "istype": (),  # its type stands behind the address
    "bufctl": (("-v", "-H"),),
    "bufctl_audit": ((),),
    "vmem_seg": (("-v",),),
}
_WITHOUT_RECORDS = ("whatis", "retained", "pathto", "whattype", "notype")


def lines(target: CoreFile) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every command line worth trying. The target is asked for addresses only after the other commands."""
    for name in _names():
        for words in LINES.get(name, () if name in OF_ADDRESSES else ((),)):
            yield name, tuple(_older(target) if word == "{older}" else word for word in words)
    for address in addresses(target):
        for name, variants in OF_ADDRESSES.items():
            if name in _WITHOUT_RECORDS or allocation_records(target):
                for words in variants:
                    yield name, (*words, hex(address))


def _older(target: CoreFile) -> str:
    """Return the path of another core with the same content."""
    assert target.path is not None
    older = f"{target.path}.older"
    if not os.path.exists(older):
        os.link(target.path, older)
    return older


def addresses(target: CoreFile) -> list[int]:
    found = [0, 8, (1 << 64) - 1, (1 << 63) + 5]
    for thread in target.threads()[:3]:
        found += [value for value in thread.registers.values() if 0 <= value < 1 << 64][:20:4]
    mappings = target.mappings()
    found += [mapping.start + mapping.size // 3 for mapping in mappings[:: max(1, len(mappings) // 6)]]
    heap = find_heap(target)
    found += [arena.top for arena in glibc(heap).all[:3]] + [free.head for free in glibc(heap).caches.lists[:3]]
    recorded = allocation_records(target)
    for entry in (*islice(recorded.all(), 3), *islice(recorded.log(), 3)):
        found += [address_of(entry), entry.address]
    return [address % (1 << 64) for address in found]


@cache
def _names() -> list[str]:
    return [name for name in command_names() if "kernel" not in find_command(name).requires]


def run(target: CoreFile, name: str, words: tuple[str, ...]) -> None:
    """Run the command as ``dmods NAME core`` does, as text and as JSON. Raises UserError, and whatever is a defect."""
    answers.text(target, name, *words)
    made = answers.answer(target, name, *words)
    assert made["command"] == name
    assert all(isinstance(note, str) and note and "\n" not in note for note in made["notes"])


def judge(core: str, exe: Optional[str]) -> tuple[int, list[dict[str, Any]]]:
    """Return how often a command ran on this core (each line as text and as JSON), and the defects of dmods."""
    runs = 0
    wrong: list[dict[str, Any]] = []
    try:
        target = CoreFile(core, exe)
    except UserError as error:
        return runs, _check_words("opening", error)
    except BaseException:  # noqa: BLE001 (a Rust panic is no Exception; whatever it is, it is a finding)
        return runs, [{"command": "opening", "trace": traceback.format_exc()}]
    todo = lines(target)
    while True:
        line = ("", ())
        started = time.process_time()
        try:
            line = next(todo, None)
            if line is None:
                return runs, wrong
            runs += FORMS
            run(target, *line)
        except UserError as error:
            wrong += _check_words(line, error)
        except BaseException:  # noqa: BLE001 (as above)
            wrong.append({"command": line, "trace": traceback.format_exc()})
        seconds = time.process_time() - started
        if seconds > SECONDS:
            wrong.append({"command": line, "trace": f"took {seconds:.1f} s"})


def _once(ask: Callable[..., str]) -> Callable[..., str]:
    known: dict[str, str] = {}

    def answer(*question: object) -> str:
        key = repr(question)
        if key not in known:
            known[key] = ask(*question)
        return known[key]

    return answer


def _check_words(line: object, error: UserError) -> list[dict[str, Any]]:
    good = error.what and error.how and "\n" not in error.what + error.how
    return [] if good else [{"command": line, "trace": f"not two lines: {error!r}"}]


def main() -> None:
    # doctor's findings about gdb and drgn are the same for every core: each debugger is started once.
    doctor._output = _once(doctor._output)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    for line in sys.stdin:
        print(json.dumps(judge(*json.loads(line))), flush=True)
        # The limit is meant for one core. A target is part of a reference cycle, and glibc keeps what is freed.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    main()
