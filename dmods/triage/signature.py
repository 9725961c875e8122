"""The name of a crash, and the keys by which dumps of the same fault find each other.

The rules are those of Mozilla's Socorro (siggen): frames of a runtime are passed over, the functions of the program
name the crash. The keys do without addresses, so that hosts agree:

* exact: how the process ended, and the build-ids and offsets of the innermost frames outside the runtime's libraries.
  No symbol is part of it: a stripped file has the same.
* loose: the program, the kind of the finding, and the functions of the innermost frames of the program, with those
  that were inlined there. Another build of the program has the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dmods.base import raw_names
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.triage.names import is_runtime_library

FRAMES = 5  # of the program, that the keys are made of
_SHOWN = 3  # functions in a signature
_LONGEST = 200  # characters of a signature
_PARAMETERS = regex(r"\((?!anonymous)[^()]*\)( const)?$")
# What compilers append to the name of a part or a copy of a function, and Rust's hash.
_CLONE = regex(r"(\.(isra|part|constprop|cold|lto_priv|llvm)(\.?\d*)*)+$|::h[0-9a-f]{16}$")
# The start of a thread or of a program says nothing about its crash.
OUTERMOST = frozenset({"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"})


class Signature(NamedTuple):
    """The name of a crash, and its keys. A key is None where too little is known for it."""

    text: str
    exact: Optional[str]
    loose: Optional[str]


def plain(function: str) -> str:
    """Return a function's name without its parameters, the suffixes of compilers, and hashes."""
    name = _CLONE.sub("", function)
    shorter = _PARAMETERS.sub("", name)
    return _CLONE.sub("", shorter) or function


def signature(
    program: Optional[str], kind: Optional[str], ended: str, places: Sequence[Mapping[str, Any]]
) -> Signature:
    """Return the signature of a crash.

    ``kind`` is that of the fatal finding; ``ended`` says how the process ended. ``places`` are the frames, innermost
    first, as the table "places" of triage has them.
    """
    outside = [place for place in places if place["build_id"] and not is_runtime_library(place["module"] or "")]
    exact = [f"{place['build_id']}+{place['offset']}" for place in outside[:FRAMES]]
    own = [place for place in places if not place["runtime"] and place["function"] not in OUTERMOST]
    functions: list[str] = []
    for place in own:
        if place["module"] is None:
            continue  # a jump to where no code is
        if place["function"] is None:
            break
        functions += [plain(name) for name in (*place["inlined"], place["function"])]
    named = functions[:FRAMES]
    shown = named or [f"{place['module']}+{place['offset']}" for place in own if place["module"]]
    text = " | ".join([kind or _without_numbers(ended), *shown[:_SHOWN]])
    loose = _key(program or "", kind or _without_numbers(ended), *named) if named else None
    return Signature(text[:_LONGEST], _key(_without_numbers(ended), *exact) if exact else None, loose)


def heap_key(findings: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """Return what is wrong with the memory, the same in every dump where the same is wrong, or None."""
    about = [
        f"{each['kind']}: {each['subject']}" if each["subject"] else each["kind"]
        for each in findings
        if each["severity"] != "fatal"
    ]
    return "; ".join(about[:2])[:_LONGEST] or None


def _key(*parts: str) -> str:
    return hashlib.sha256(raw_names.key("\0".join(parts))).hexdigest()[:32]


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text.partition(" at 0x")[0])[:80]
