"""The columns of the tables of a triage."""

from __future__ import annotations

from dmods.heap.ledger import LEDGER
from dmods.report import Column, Schema

EVIDENCE = Schema("evidence", "an address that proves a finding", (Column("address", "address"), Column("what")))
FINDINGS = Schema(
    "findings",
    "a finding, the worst first",
    (
        Column("number", "count"),
        Column("kind"),
        Column("severity", about="fatal, serious or waste"),
        Column("confidence", about="certain, likely or possible"),
        Column("check"),
        Column("what"),
        Column("evidence", "objects", hidden=True, fields=EVIDENCE),
        Column("remedy", hidden=True),
        Column("next", "texts", hidden=True, about="commands to type"),
        Column("weight", "bytes", hidden=True, about="bytes where bytes are meant; it orders findings"),
        Column(
            "subject",
            hidden=True,
            null="it has none",
            about="what another dump of the program has, too: a variable, a caller, a size",
        ),
        Column("remedy_confidence", hidden=True),
        Column("alternative", hidden=True, null="no other is known", about="another explanation"),
        Column("noticed", hidden=True, null="it is not known", about="who had to do with the memory"),
        Column("hurt", hidden=True, null="it is not known", about="who had to do with the memory"),
        Column("wrote", hidden=True, null="it is not known", about="who had to do with the memory"),
        Column("holds", hidden=True, null="it is not known", about="who had to do with the memory"),
    ),
)
MEMORY = Schema(
    "memory",
    "a part of the memory: the parts add up to all of it",
    (
        Column("part", title="PART"),
        Column("bytes", "size", title="SIZE"),
        Column("percent", "percent", title="%"),
        Column("note", title=" ", about="in words, or empty"),
        Column("mapped_bytes", "bytes", hidden=True, null="it is not told apart", about="with what was never touched"),
    ),
    when="where it is known",
)
_KNOWN = "where it is known"
CRASH = Schema(
    "crash",
    "how the process or the kernel ended",
    (
        Column("ended"),
        *(
            Column(name, when=f"for a process, {_KNOWN}")
            for name in ("thread", "message", "address", "instruction", "python", "gil", "unwritten")
        ),
        Column("pc", when=_KNOWN),
        *(Column(name, when=f"for a kernel, {_KNOWN}") for name in ("kernel", "task", "panic", "called_by", "tainted")),
    ),
    when="where it is known",
)
_FACT = (Column("name"), Column("text"))
IDENTITY = Schema("identity", "a fact about what was dumped: program, package, host and the like", _FACT)
TRUST = Schema("trust", "how far the dump and the files beside it can be trusted", _FACT)
CHECKS = Schema(
    "checks",
    "a check that was asked for",
    (
        Column("check"),
        Column("state", about="OK, found or not run"),
        Column("value", about="what it measured, or why it did not run"),
        Column("rule"),
    ),
)
LINES = (Column("line"),)
STACK = Schema("stack", "a frame of the crash, as text", LINES, when="where it is known how it ended")
PLACES = Schema(
    "places",
    "a frame of the crash, without addresses of this machine",
    (
        Column("module", null="it is not known"),
        Column("build_id", null="it is not known"),
        Column("offset", "address", null="it is not known"),
        Column("function", null="it is not known"),
        Column("inlined", "texts", hidden=True),
        Column("runtime", "flag", hidden=True, about="whether it is the runtime's own"),
    ),
    when="where it is known how it ended",
)
HOLDER = Schema(
    "holder",
    "who holds the most memory",
    (
        Column("what"),
        Column("kind", about="that of `suspects`, or mapping"),
        Column("bytes", "bytes"),
        Column("percent", "percent", null="it is not known"),
        Column("process_percent", "percent", null="it is not known"),
        Column("address", "address", null="it is not known"),
        Column("next", "texts", about="commands to type"),
        Column("suspect", "flag", about="whether `suspects` names it"),
    ),
    when="for a process, where it is known",
)
UNKNOWN = Schema(
    "unknown",
    "something that could not be known",
    (Column("what"), Column("why"), Column("help", hidden=True, null="nothing would help")),
)
TABLES = (FINDINGS, CRASH, STACK, PLACES, MEMORY, HOLDER, CHECKS, UNKNOWN, IDENTITY, TRUST)
_NO_CRASH = "it was alive when it was dumped, or nothing is known of its end"
TOTALS = (
    Column("kind", about="process or kernel"),
    Column("findings", "count"),
    Column("first", null="there is no finding", about="the kind of the first finding"),
    Column("checks", "texts", about="those that ran"),
    Column("program", null="it is not known"),
    Column("build_id", null="it is not known"),
    Column("pid", "count", null="it is not known", when="for a process"),
    Column("missing_bytes", "bytes", when="for a process", about="of its memory: the dump lacks them"),
    Column("signature", null=_NO_CRASH),
    Column("signature_exact", null=_NO_CRASH, about="a key that the same crash of the same build has"),
    Column("signature_loose", null=_NO_CRASH, about="a key that the same crash of other builds has"),
    Column("memory_bytes", "bytes", null="it is not known"),
    Column("memory", "object", null="it is a kernel, or it is not known", fields=LEDGER),
)
