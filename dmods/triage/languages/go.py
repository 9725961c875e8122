"""Go: panics and fatal errors of programs that dump core (GOTRACEBACK=crash).

runtime.gopanic() keeps the value of the panic on its stack: a pointer to a type and a pointer to data. runtime.throw()
and runtime.fatal() keep their message there: a pointer and a length. The layout of a type is internal/abi, Type.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Optional

from dmods.finding import CERTAIN, FATAL, Finding
from dmods.heap.texts import printable
from dmods.modules.golang.moduledata import go_modules
from dmods.process.mappings import mapping_at
from dmods.process.unwind import Frame
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import function_of

_POINTER, _STRING, _STRUCT = 22, 24, 25  # internal/abi, Kind
_KIND_MASK = 31
_KIND_AT = {8: 23, 4: 15}  # of Type.Kind_: after size, ptrdata (words), hash (4), tflag, align, field align
_MOST_TEXT = 1000
_MOST_THREADS = 256
# runtime/error.go, boundsErrorFmts: the first ones; the others are about slices.
_BOUNDS = {0: "index out of range [{x}] with length {y}"}
_BOUNDS_ERROR = b"runtime.boundsError"
_FATAL = (
    ("all goroutines are asleep", "deadlock", "a goroutine must send, unlock or close what the others wait for"),
    ("stack overflow", "stack-overflow", "end the recursion"),
    ("concurrent map", "data-race", "guard the map with a mutex: `go run -race` finds who else uses it"),
    ("out of memory", "out-of-memory", "find what grows: `profile --source go` shows who allocates"),
    ("found bad pointer", "heap-damage", "unsafe or C code wrote a bad pointer into Go's heap"),
)
_PANICS = (
    ("nil pointer dereference", "null-pointer"),
    ("index out of range", "out-of-bounds"),
    ("slice bounds out of range", "out-of-bounds"),
    ("integer divide by zero", "division-by-zero"),
    ("makeslice", "out-of-bounds"),
)


def explain(facts: ProcessFacts) -> Optional[Finding]:
    """Return the panic or fatal error that ended the program, or None."""
    if not any(function_of(name).startswith("runtime.") for name in facts.names):
        return None
    found = _explained(facts)
    if found is not None:
        return found
    # The signal went on from thread to thread, so that each prints its stack. Another thread began it.
    facts.provide("stacks")
    for thread, _stack in facts.stacks[:_MOST_THREADS]:
        found = _explained(ProcessFacts(facts.target, facts.private, thread))
        if found is not None:
            return found
    return None


def _explained(facts: ProcessFacts) -> Optional[Finding]:
    functions = [function_of(name) for name in facts.names]
    for number, name in enumerate(functions):
        if name == "runtime.gopanic":
            return _panic(facts, number)
    for number, name in enumerate(functions):
        if name in ("runtime.throw", "runtime.fatal"):
            return _fatal_error(facts, number)
    for number, name in enumerate(functions):
        if name.startswith("runtime.fatalthrow"):  # unwinding stopped where Go changed to the system's stack
            return _fatal_error(facts, number)
    return None


def _panic(facts: ProcessFacts, number: int) -> Finding:
    message = next(_values(facts, number), "")
    place = facts.own_place()
    kind = next((kind for words, kind in _PANICS if words in message), "go-panic")
    if any(function_of(name) == "runtime.panicmem" or function_of(name) == "runtime.sigpanic" for name in facts.names):
        kind = kind if kind != "go-panic" else "null-pointer"
    said = facts.content(message)
    what = f"{place} panicked" + (f": {said}" if said else "")
    return Finding(
        kind,
        FATAL,
        CERTAIN,
        what,
        "handle the case, or recover() where the program can go on",
        next=("findstack",),
        alternative="the data came from outside, and nobody tested it: look at the arguments of the outer frames",
    )


def _fatal_error(facts: ProcessFacts, number: int) -> Finding:
    message = next(_texts(facts, number), "")
    place = facts.own_place()
    known = next(((kind, remedy) for words, kind, remedy in _FATAL if words in message), None)
    kind, remedy = known or ("go-fatal", "Go's runtime found something that it cannot go on with")
    # The runtime's own stack has no function of the program.
    by = f" in {place}" if re.match(r"[\w/]+\.", place) and not place.startswith("runtime.") else ""
    # The runtime's own words are known; others may come from the program.
    said = (message if known else facts.content(message, "message")) or "fatal error"
    return Finding(
        kind,
        FATAL,
        CERTAIN,
        f"Go's runtime ended the program{by}: {said}",
        remedy,
        next=("stacks",),
        alternative="C code or unsafe code of the process damaged the runtime; a program without cgo would be "
        "evidence against this",
    )


def _words(facts: ProcessFacts, number: int) -> list[int]:
    """Return the words of a frame and of the one below it, which may hold its arguments."""
    frames: list[Frame] = facts.frames
    if number + 1 >= len(frames):
        return []
    start, end = frames[number].sp, frames[number + 1].sp
    size = min(max(0, end - start) + 64, 4096)
    return list(facts.heap.words.many(start, size // facts.target.arch.word) or ())


def _texts(facts: ProcessFacts, number: int) -> Iterator[str]:
    """Yield the strings in a frame: a pointer into the program's constants, and a length."""
    words = _words(facts, number)
    for pointer, length in zip(words, words[1:]):
        mapping = mapping_at(facts.target, pointer) if 3 < length <= _MOST_TEXT else None
        if mapping is not None:
            text = _string(facts, pointer, length)
            if text:
                yield text


def _values(facts: ProcessFacts, number: int) -> Iterator[str]:
    """Yield what the values (``any``) in a frame say: a string, an error with a text, a bounds error."""
    words, image, word = _words(facts, number), facts.target.image(), facts.target.arch.word
    for kind_at, data_at in zip(words, words[1:]):
        mapping = mapping_at(facts.target, kind_at)
        if mapping is None or "w" in mapping.flags or mapping_at(facts.target, data_at) is None:
            continue
        kind = image.read(kind_at + _KIND_AT[word], 1)
        if not kind or kind[0] & _KIND_MASK not in (_POINTER, _STRING, _STRUCT):
            continue
        pair = facts.heap.words.many(data_at, 2)
        text = _string(facts, *pair) if pair is not None and 0 < pair[1] <= _MOST_TEXT else None
        if text is None and kind[0] & _KIND_MASK == _STRUCT and _is_bounds_error(facts, kind_at):
            text = _bounds(image.read(data_at, 18))
        if text:
            yield text


def _is_bounds_error(facts: ProcessFacts, kind_at: int) -> bool:
    """Return whether a type is runtime.boundsError: any other with these first bytes would be called an index."""
    image, word = facts.target.image(), facts.target.arch.word
    size, pointers = facts.heap.words.many(kind_at, 2) or (0, 0)
    if (size, pointers) != (24 if word == 8 else 16, 0):
        return False
    types = next((m.types for m in go_modules(facts.target) if m.types and m.types[0] <= kind_at < m.types[1]), None)
    if types is None:
        return True
    name = types[0] + int.from_bytes(image.read(kind_at + _KIND_AT[word] + 1 + 2 * word, 4), "little")
    return image.read(name + 2, len(_BOUNDS_ERROR) + 1).removeprefix(b"*").startswith(_BOUNDS_ERROR)


def _bounds(data: bytes) -> Optional[str]:
    """Return the text of a runtime.boundsError: x, y (64 bits), signed, code (8 bits each)."""
    if len(data) < 18 or data[16] > 1 or data[17] > 16:
        return None
    x, y = struct.unpack_from("<qq", data)
    return _BOUNDS.get(data[17], "slice bounds out of range [{x}], {y}").format(x=x, y=y)


def _string(facts: ProcessFacts, pointer: int, length: int) -> Optional[str]:
    data = facts.target.image().read(pointer, length) if mapping_at(facts.target, pointer) is not None else b""
    return printable(data) if len(data) == length else None
