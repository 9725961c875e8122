"""C++: an exception that nobody caught, a pure virtual call, and other ends by std::terminate().

The header of a thrown exception stands before the thrown object (Itanium C++ ABI, "Exception Handling", 2.2.1). It ends
with the unwinder's header, whose first word is a constant: GNUCC++ (libstdc++) or CLNGC++ (libc++).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.base.named_tuple import NamedTuple
from dmods.finding import CERTAIN, FATAL, LIKELY, Evidence, Finding
from dmods.heap.block import FREE
from dmods.heap.content import type_info_name
from dmods.heap.texts import printable
from dmods.process.mappings import mapping_at
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import has

# The exception classes as little-endian words, the last byte of the word first. With "\x01": a dependent exception.
_CLASSES = (0x474E5543432B2B00, 0x434C4E47432B2B00)
_HEADER = {8: (0x50, 0x20), 4: (48, 32)}  # word: (from the type to the class word, from there to the object)
_MOST = 64
_BASES = 16
_MESSAGES = ("std::runtime_error", "std::logic_error")  # their first member holds what() (libstdc++ and libc++)
_WHAT_MAX = 500
_CATCH = "catch it where the program can go on, or remove its cause"


class Thrown(NamedTuple):
    """An exception: its class, the thrown object, and the text of what() where it can be read."""

    type: str
    object: int
    what: Optional[str]


def explain(facts: ProcessFacts) -> Optional[Finding]:
    """Return why std::terminate() or a trap of the C++ runtime ended the process, or None."""
    names = facts.names
    if has(names, r"__cxa_pure_virtual$"):
        return _fatal(
            "pure-virtual",
            CERTAIN,
            f"{facts.own_place()} called a pure virtual function",
            "a constructor or destructor calls it, or the object is destroyed already",
        )
    if has(names, r"__cxa_deleted_virtual$"):
        return _fatal(
            "pure-virtual",
            CERTAIN,
            f"{facts.own_place()} called a deleted virtual function",
            "the object is destroyed already",
        )
    if not has(names, r"std::(__)?terminate|__cxxabiv1::__terminate|__cxa_(throw|rethrow)$|__gxx_personality"):
        return None
    found = thrown(facts)
    if not found:
        return _without_exception(facts)
    first = found[0]
    said = f": {facts.content(first.what, 'text')}" if first.what else ""
    text = f"{first.type}{said}"
    evidence = (Evidence(first.object, f"the exception, of type {first.type}"),)
    if first.type in ("std::bad_alloc", "std::bad_array_new_length"):
        size = f": {facts.exhausted}" if facts.exhausted else ""
        return _fatal(
            "out-of-memory",
            CERTAIN,
            f"{facts.own_place()} got {first.type}, and nobody caught it{size}",
            "find what grows: `owners` and `suspects` name what holds the memory",
            evidence,
            next_=("owners", "suspects"),
        )
    quiet = has(names, r"__gxx_personality") is not None
    what = f"{facts.own_place()} threw {text}, " + (
        "through a function that is noexcept" if quiet else "and nobody caught it"
    )
    return _fatal(
        "uncaught-exception", CERTAIN, what, "catch it where the program can go on, or remove its cause", evidence
    )


def _without_exception(facts: ProcessFacts) -> Finding:
    if has(facts.names, r"__cxa_throw$"):
        return _fatal(
            "uncaught-exception",
            CERTAIN,
            f"{facts.own_place()} threw an exception, and nobody caught it",
            "catch it where the program can go on, or remove its cause",
        )
    return _fatal(
        "terminate",
        LIKELY,
        f"{facts.own_place()} called std::terminate() without an exception",
        "a std::thread that is destroyed must be joined or detached first",
    )


def thrown(facts: ProcessFacts) -> list[Thrown]:
    """Return the exceptions that exist, those that the dying thread's stack points to first.

    An exception of libstdc++ lies in the heap; where malloc fails, in a pool of its own.
    """
    target, heap = facts.target, facts.heap
    word = target.arch.word
    if word != 8:
        return []
    ranges = [(m.start, m.end) for m in target.mappings() if "w" in m.flags and m.anonymous]
    wanted = sorted((value, value + 2) for value in _CLASSES)
    at = sorted(each for found in _engine.find_pointers(target.image(), ranges, word, wanted, _MOST) for each in found)
    to_type, to_object = _HEADER[word]
    out = []
    for place in at:
        block = heap.index.block_at(place)
        if block is not None and block.state == FREE:
            continue
        info = heap.words.at(place - to_type) or 0
        name = type_info_name(target, info)
        if name is not None:
            out.append(Thrown(name, place + to_object, _what(facts, info, place + to_object, name)))
    held = {value for frame in facts.frames[:16] for value in frame.registers.values()}
    held.update(_stack_words(facts))
    return sorted(out, key=lambda each: (each.object not in held and each.object - to_object not in held, each.object))


def _stack_words(facts: ProcessFacts) -> Iterator[int]:
    frames = facts.frames[:32]
    for frame, following in zip(frames, frames[1:]):
        size = min(max(0, following.sp - frame.sp), 4096)
        yield from facts.heap.words.many(frame.sp, size // facts.target.arch.word) or ()


def _what(facts: ProcessFacts, info: int, address: int, name: str) -> Optional[str]:
    """Return the text of the exception, or None: of std::runtime_error and its kin, of text, and of numbers."""
    words = facts.heap.words
    if name in ("char const*", "char*"):
        return _text(facts, words.at(address) or 0)
    if name in ("int", "unsigned int", "long", "unsigned long", "short"):
        return str(words.int32(address))
    if any(base in _MESSAGES for base in _bases(facts, info, name)):
        return _text(facts, words.at(address + words.size) or 0)
    if name.startswith("std::__cxx11::basic_string<char"):
        return _text(facts, words.at(address) or 0)
    return None


def _bases(facts: ProcessFacts, info: int, name: str) -> Iterator[str]:
    """Yield the class and its single bases (Itanium C++ ABI, 2.9.5: __si_class_type_info::__base_type)."""
    yield name
    for _step in range(_BASES):
        following = facts.heap.words.at(info + 2 * facts.heap.words.size)
        base = type_info_name(facts.target, following) if following else None
        if base is None or following is None:
            return
        yield base
        info = following


def _text(facts: ProcessFacts, address: int) -> Optional[str]:
    if mapping_at(facts.target, address) is None:
        return None
    data = facts.target.image().read(address, _WHAT_MAX).partition(b"\0")[0]
    return printable(data) if data else None


def _fatal(
    kind: str,
    confidence: str,
    what: str,
    remedy: str,
    evidence: tuple[Evidence, ...] = (),
    *,
    next_: tuple[str, ...] = ("findstack",),
) -> Finding:
    or_ = "the data came from outside, and nobody tested it: look at the arguments of the outer frames"
    return Finding(kind, FATAL, confidence, what, remedy, evidence, next_, alternative=or_)
