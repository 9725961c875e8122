"""Tell what an instruction that trapped means: which pointer was wrong, and why."""

from __future__ import annotations

from functools import partial
from typing import Optional

from dmods import _engine
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, CannotCheck, Evidence, Finding, Parties, fatal
from dmods.heap.block import FREE, OWN
from dmods.heap.damage import damages
from dmods.process import signals
from dmods.process.calls import loaded_from
from dmods.process.cause import NULL_PAGE, explain_address
from dmods.process.mappings import mapping_at
from dmods.process.released import is_in_malloc
from dmods.target import Signal
from dmods.triage.complaints import explain_damage
from dmods.triage.facts import ProcessFacts
from dmods.triage.failed_malloc import unchecked
from dmods.triage.freed import Freed, freed_memory
from dmods.triage.given import given_pointer
from dmods.triage.held_blocks import Held, history, operands, thread_values
from dmods.triage.misuse import judge
from dmods.triage.names import first_own
from dmods.triage.stack_faults import lost_pointer, stack_overflow

_fault = partial(fatal, next_=("panicinfo",))
_CANONICAL = 1 << 47
_WIDE, _BITS = 8, 64  # bytes and bits of a pointer in which a flipped bit can be told
_MOST_FREED = 64  # words equal to the bad pointer that are looked at


def explain_fault(facts: ProcessFacts, signal: Signal) -> Finding:
    """Return why the instruction trapped."""
    number, code = signal.number, signals.code_name(signal.number, signal.code or 0)
    where = _where(facts)
    if number == signals.SIGFPE:
        what = "an integer division by zero" if code == "FPE_INTDIV" else f"an arithmetic fault ({code})"
        or_ = "the smallest number divided by -1 traps in the same way: the registers in panicinfo tell them apart"
        remedy = "test the divisor before dividing"
        return _fault("division-by-zero", CERTAIN, f"{what} in {where}", remedy, or_=or_)
    if number in (signals.SIGILL, signals.SIGTRAP):
        what = "the program stopped itself by a trap instruction" if _is_trap(facts) else "an invalid instruction"
        remedy = "a compiler puts a trap where code must not be reached: look at the line before it"
        or_ = "a check that the compiler put in (-fsanitize-trap, -ftrapv) ends so, too: the line has an operation then"
        return _fault("trap", CERTAIN if _is_trap(facts) else LIKELY, f"{what} in {where}", remedy, or_=or_)
    return _memory_fault(facts, signal, where)


def unexplained_fault(facts: ProcessFacts, signal: Signal) -> Finding:
    """Return that the signal of a fault ended the process, where the dump lacks the kernel's siginfo_t (NT_SIGINFO).

    valgrind's cores lack it, and so do some minidumps: neither the bad address nor a sender is known.
    """
    instruction = f": {facts.instruction}" if facts.instruction else ""
    return _fault(
        "fault",
        LIKELY,
        f"{signals.name(signal.number)} ended the program in {_where(facts)}{instruction}; the dump does not say at "
        "which address",
        "look at the instruction and at its operands: a dump without siginfo has no more",
        sure=POSSIBLE,
        or_="another process sent the signal: the dump does not say who sent it",
    )


def _memory_fault(facts: ProcessFacts, signal: Signal, where: str) -> Finding:
    address = signal.address
    text = explain_address(facts.target, facts.cause) or signals.describe(signal)
    frame = facts.cause.frame
    if "a stack overflow" in text:
        return stack_overflow(facts, where, text)
    lost = lost_pointer(facts, address, where)
    if lost is not None:
        return lost
    if frame is not None and address is not None and address == frame.pc:
        return _bad_jump(facts, address, text)
    try:
        facts.provide("heap")
        known = _in_malloc(facts) or _through_freed(facts, address)
    except CannotCheck:
        known = None
    if known is not None:
        return known
    if address is not None and address < NULL_PAGE:
        return _null(facts, address, where)
    return _mapped(facts, signal, where, text)


def _mapped(facts: ProcessFacts, signal: Signal, where: str, text: str) -> Finding:
    """Return an access that the mapping forbids, or one through a pointer to nowhere."""
    address = signal.address
    if signal.number == signals.SIGBUS and signal.code != signals.SI_KERNEL:
        what = f"an access past the end of a mapped file in {where}: {text}"
        remedy = "something made the file shorter after it was mapped, or the disk could not be read"
        or_ = "the disk could not be read: then the kernel's log of that time has an I/O error"
        return _fault("past-end-of-file", LIKELY, what, remedy, _at(address, text), or_=or_)
    if "read-only memory" in text:
        return _fault(
            "read-only-write",
            CERTAIN,
            f"a write to read-only memory in {where}",
            "copy a string constant before it is changed",
            _at(address, text),
            or_="mprotect() made the memory read-only on purpose; a mapping without a file (maps) would be evidence "
            "for this",
        )
    return _wild(facts, signal, where, text)


def _wild(facts: ProcessFacts, signal: Signal, where: str, text: str) -> Finding:
    held = next((each for each in operands(facts) if each.value >= _CANONICAL or _unmapped(facts, each.value)), None)
    shown = signal.address
    if shown is None and held is not None and not facts.private:
        shown = held.value
    what = f"an access through a bad pointer in {where}: {text}"
    if held is not None:
        what = f"{held.register} is {_value(facts, held.value)}a bad pointer, in {where}"
    remedy = "find where the pointer was written: its holder may have been overwritten, freed, or never set"
    parties = Parties(noticed=f"the instruction in {where}", hurt=f"the pointer in {held.register}" if held else "")
    return _fault(
        "bad-pointer",
        LIKELY,
        what,
        remedy,
        _at(shown, text),
        next_=("panicinfo", "heapcheck"),
        sure=POSSIBLE,
        or_=_flipped(facts, held.value if held is not None else shown),
        parties=parties,
    )


def _flipped(facts: ProcessFacts, value: Optional[int]) -> str:
    """Return the evidence for and against a bit of memory that flipped: a mapping at one bit's distance."""
    if value is None or facts.target.arch.word != _WIDE or facts.private:
        return "memory that is not ECC may have flipped a bit: nothing in one dump shows it"
    near = [bit for bit in range(_BITS) if mapping_at(facts.target, value ^ 1 << bit) is not None]
    if len(near) != 1:
        return "a bit of memory flipped; evidence against this: no single bit leads to memory of the process"
    return (
        f"a bit of memory flipped: bit {near[0]} leads from it to memory of the process; evidence against "
        "this: pointers are overwritten far more often"
    )


def _value(facts: ProcessFacts, value: int) -> str:
    """Return the value that was used as a pointer. It may be a piece of a text, which is left out if it is private."""
    return "" if facts.private else f"{value:#x}, "


def _unmapped(facts: ProcessFacts, value: int) -> bool:
    return value >= NULL_PAGE and mapping_at(facts.target, value) is None


def _null(facts: ProcessFacts, address: int, where: str) -> Finding:
    table = _null_table(facts)
    if table is not None:
        holder, what = table
        return _fault(
            "null-vtable",
            LIKELY,
            f"a call through a table of functions that is NULL, in {where}: the first word of the object is 0",
            "the object was never constructed, or it was cleared: look at who made it",
            (Evidence(holder, what),),
            next_=(f"whatis {holder:#x}", "panicinfo"),
            sure=POSSIBLE,
            or_="the pointer leads to another object than the code means: whatis says whose memory it is",
            parties=Parties(f"the call in {where}", what),
        )
    failed, grown = unchecked(facts), facts.exhausted
    if failed is not None:
        return _fault(
            "out-of-memory",
            failed.confidence,
            f"{failed.function} returned NULL, and {where} used it" + (f": {grown}" if grown else ""),
            _MEMORY,
            next_=("owners",),
            or_=f"the size that {failed.function} was asked for is wrong: look at the line of the call",
        )
    member = f" (a member at offset {address:#x})" if address else ""
    instruction = f": {facts.instruction}" if facts.instruction else ""
    return _fault(
        "null-pointer",
        CERTAIN,
        f"a NULL pointer was used in {where}{member}{instruction}",
        "test the pointer, or find why the caller has none",
        _at(address, "NULL" if not address else f"NULL plus {address:#x}"),
        or_=f"malloc failed before: {grown}; an earlier call may have left that errno"
        if grown
        else f"zeros were written over the pointer{_soundness(facts)}",
        parties=Parties(noticed=f"the instruction in {where}"),
    )


def _soundness(facts: ProcessFacts) -> str:
    """Return what the heap says about memory that was overwritten."""
    try:
        facts.provide("heap")
    except CannotCheck:
        return ""
    return ": the heap is damaged (heapcheck)" if facts.damaged else "; evidence against this: the heap is sound"


def _null_table(facts: ProcessFacts) -> Optional[tuple[int, str]]:
    """Return an object whose first word is 0, where the instruction calls through that word. Or None."""
    if not facts.instruction.startswith(("call", "blr")) and "call" not in facts.instruction:
        return None
    frame = facts.cause.frame
    first = facts.target.arch.registers
    wanted = [name for name in ("rdi", "rbx", "x0", "rbp", "r12") if name in first]
    for name in wanted:
        value = frame.registers.get(name, 0) if frame is not None else 0
        mapping = mapping_at(facts.target, value) if value >= NULL_PAGE else None
        if mapping is not None and "w" in mapping.flags and facts.heap.words.at(value) == 0:
            block = facts.heap.index.block_at(value)
            text = f"an object in a block of {block.size} bytes{history(facts, block)}" if block else "an object"
            return value, text
    return None


def _bad_jump(facts: ProcessFacts, address: int, text: str) -> Finding:
    caller = next((place for place in facts.names[1:]), None)
    by = f" by {caller}" if caller is not None else ""
    if address < NULL_PAGE:
        return _fault(
            "null-call",
            CERTAIN,
            f"a NULL function pointer was called{by}",
            "test the function pointer, or find why nothing set it",
            _at(address, "the pc itself"),
            or_=f"zeros were written over the function pointer{_soundness(facts)}",
        )
    return _fault(
        "bad-jump",
        CERTAIN,
        f"a jump{by} to where no code is: {text.rpartition('a jump to ')[2]}",
        "find where the function pointer, the vtable or the return address was overwritten",
        _at(address, text),
        next_=("panicinfo", "heapcheck"),
        sure=POSSIBLE,
        or_="the return address on the stack was overwritten: then the frames above it are not to be trusted",
        parties=Parties(noticed="the processor, at the jump"),
    )


# -- malloc's own instructions ----------------------------------------------------------------------------------------


def _in_malloc(facts: ProcessFacts) -> Optional[Finding]:
    """Return why malloc's own code trapped: a pointer that it did not return, or damage; None for any other code."""
    own = first_own(facts.names)
    if own is None or own == 0 or not is_in_malloc(facts.target, facts.frames[: own + 1]):
        return None
    found = list(damages(facts.heap))
    given = given_pointer(facts)
    wrong = judge(facts, given, found, False) if given is not None else None
    return wrong or explain_damage(facts, found)


# -- freed memory ---------------------------------------------------------------------------------------------------


def _through_freed(facts: ProcessFacts, address: Optional[int]) -> Optional[Finding]:
    """Return a use of freed memory: the bad pointer, or what it was read from, lies in a freed block. Or None."""
    touched = freed_memory(facts, address) if address is not None and address >= NULL_PAGE else None
    if address is not None and touched is not None:
        return _freed(facts, CERTAIN, f"{address:#x} lies {touched.where}", touched)
    used = [each for each in operands(facts) if each.value >= NULL_PAGE]
    for each in used:
        direct = freed_memory(facts, each.value) if each.memory and not each.chunk else None
        if direct is not None:
            return _freed(facts, CERTAIN, f"{each.register} points {direct.where}", direct)
    bad = [each for each in used if each.block is None and (each.value >= _CANONICAL or _unmapped(facts, each.value))]
    for each in bad[:2]:
        confidence, source = _source(facts, each)
        if source is not None:
            shown = "" if facts.private else f" {each.value:#x}"
            return _freed(facts, confidence, f"the bad pointer{shown} was read {source.where}", source)
    return None


def _source(facts: ProcessFacts, held: Held) -> tuple[str, Optional[Freed]]:
    """Return the freed memory that a bad pointer was read from, and how sure that is. None: no freed memory holds it.

    The instruction that loaded it says the place. Otherwise it is a place of freed memory that holds the same value.
    """
    frame, words = facts.cause.frame, facts.heap.words
    at = loaded_from(facts.target, frame, held.register) if frame is not None else None
    if at is not None and words.at(at) == held.value:
        return CERTAIN, freed_memory(facts, at)
    found = _freed_holders(facts, held.value)
    starts = {each.start for each in found}
    known = {each.value for each in thread_values(facts)} if len(starts) > 1 else starts
    named = [each for each in found if each.start in known] or found
    sure = LIKELY if len({each.start for each in named}) == 1 else POSSIBLE
    return sure, named[0] if named else None


def _freed_holders(facts: ProcessFacts, value: int) -> list[Freed]:
    """Return the freed memory that holds the value. Only a value that no block in use holds counts."""
    heap = facts.heap
    wanted = [(value, value + 1)]
    found = _engine.find_pointers(heap.target.image(), list(heap.owned), heap.words.size, wanted, _MOST_FREED)[0]
    blocks = [heap.index.block_at(at) for at in found]
    if any(block is not None and block.state not in (FREE, OWN) for block in blocks):
        return []
    return [each for each in (freed_memory(facts, at) for at in found) if each is not None]


def _freed(facts: ProcessFacts, confidence: str, how: str, freed: Freed) -> Finding:
    return _fault(
        "use-after-free",
        confidence,
        f"freed memory was used in {_where(facts)}: {how}{freed.history}",
        "find who freed the block while it was in use"
        + ("" if facts.heap.records else ": `dmods run --audit audit,log -- PROG` records it"),
        (freed.evidence,),
        next_=(f"whatis {freed.known:#x}", "panicinfo"),
        sure=LIKELY if facts.heap.records else POSSIBLE,
        or_="the variable was never set, and holds what an earlier call left on the stack: look at its declaration",
        parties=Parties(f"the instruction in {_where(facts)}", freed.hurt, freed.blamed),
    )


# -- helpers --------------------------------------------------------------------------------------------------------

_MEMORY = "find what grows: `owners` and `suspects` name what holds the memory"


def _where(facts: ProcessFacts) -> str:
    """Return the function that trapped, and who of the program called it."""
    names = facts.names
    if not names:
        return "an unknown function"
    own = first_own(names)
    if own == 0:
        return facts.place_with_line(0)
    return names[0] if own is None else f"{names[0]}, called by {facts.place_with_line(own)}"


def _is_trap(facts: ProcessFacts) -> bool:
    return facts.instruction.startswith(("ud2", "int3", "brk", "udf"))


def _at(address: Optional[int], text: str) -> tuple[Evidence, ...]:
    return (Evidence(address, text),) if address is not None else ()
