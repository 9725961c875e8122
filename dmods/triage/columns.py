"""The columns of the tables of a triage."""

from __future__ import annotations

from dmods.report import Column

FINDINGS = (
    Column("number", "count"),
    Column("kind"),
    Column("severity"),
    Column("confidence"),
    Column("check"),
    Column("what"),
    Column("evidence", hidden=True),
    Column("remedy", hidden=True),
    Column("next", hidden=True),
    Column("weight", "bytes", hidden=True),
    Column("subject", hidden=True),
    Column("remedy_confidence", hidden=True),
    Column("alternative", hidden=True),
    Column("noticed", hidden=True),
    Column("hurt", hidden=True),
    Column("wrote", hidden=True),
    Column("holds", hidden=True),
)
MEMORY = (
    Column("part", title="PART"),
    Column("bytes", "size", title="SIZE"),
    Column("percent", "percent", title="%"),
    Column("note", title=" "),
    Column("mapped_bytes", "bytes", hidden=True),
)
CRASH = (Column("name"), Column("text"))
FACTS = (Column("name"), Column("text"))
CHECKS = (Column("check"), Column("state"), Column("value"), Column("rule"))
LINES = (Column("line"),)
PLACES = (
    Column("module"),
    Column("build_id"),
    Column("offset", "address"),
    Column("function"),
    Column("inlined", hidden=True),
    Column("runtime", hidden=True),
)
HOLDER = (
    Column("what"),
    Column("kind"),
    Column("bytes", "bytes"),
    Column("percent", "percent"),
    Column("process_percent", "percent"),
    Column("address", "address"),
    Column("next"),
    Column("suspect"),
)
UNKNOWN = (Column("what"), Column("why"), Column("help", hidden=True))
