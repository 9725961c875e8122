"""The tables and totals of `growth` for processes."""

from __future__ import annotations

from dmods.heap.ledger import LEDGER
from dmods.process.shapes import stack_columns
from dmods.report import Column, Schema

_OTHER_RUN = "the cores are of different runs"
_NO_STACK = "--by says something else, or the stack is not known"

CHANGES = Schema(
    "growth",
    "a key, and how much its blocks grew",
    (
        Column("growth_bytes", "bytes", width=10, title="GROWTH"),
        Column("percent", "percent", title="OF ALL", about="of what grew"),
        Column("old_bytes", "bytes", width=10, title="OLD"),
        Column("now_bytes", "bytes", width=10, title="NOW"),
        Column("growth_count", "count", title="BLOCKS"),
        Column("bytes_per_hour", "bytes", title="PER HOUR", null="the time between the cores is not known"),
        Column("new_bytes", "bytes", title="NEW", null=_OTHER_RUN),
        Column("gone_bytes", "bytes", title="GONE", null=_OTHER_RUN),
        Column("kept_bytes", "bytes", title="KEPT", null=_OTHER_RUN, about="new since the first core, still there"),
        Column("leaked_bytes", "bytes", title="LEAKED", null="what leaked is not known"),
        Column("buffer", "address", title="BUFFER", null="no block stands for them", about="one of the blocks"),
        Column("key", about="what --by names: a type, a caller, a size and the like"),
        Column("old_count", "count", hidden=True),
        Column("now_count", "count", hidden=True),
        Column("new_count", "count", hidden=True, null=_OTHER_RUN),
        Column("gone_count", "count", hidden=True, null=_OTHER_RUN),
        Column("kept_count", "count", hidden=True, null=_OTHER_RUN),
        Column("survived_count", "count", hidden=True, null=_OTHER_RUN),
        Column("survived_bytes", "bytes", hidden=True, null=_OTHER_RUN),
        Column("proven_count", "count", hidden=True, null=_OTHER_RUN, about="of those that survived"),
        Column("oldest", "time", hidden=True, null="nothing is recorded"),
        Column("newest", "time", hidden=True, null="nothing is recorded"),
        Column("each_bytes", "sizes", hidden=True, about="in each core"),
        Column("each_count", "counts", hidden=True, about="in each core"),
        *stack_columns(null=_NO_STACK),
    ),
)
_MEASURED = "the sentence is a measurement"
FINDINGS = Schema(
    "findings",
    "a sentence about the growth",
    (
        Column("finding"),
        Column("kind", hidden=True, null=_MEASURED),
        Column("confidence", hidden=True, null=_MEASURED, about="certain, likely or possible"),
        Column("bytes", "bytes", hidden=True, null=_MEASURED),
        Column("address", "address", hidden=True, null="no block shows it"),
        Column("next", "texts", hidden=True, about="commands to type"),
    ),
)
TOTALS = (
    Column("by"),
    Column("cores", "count"),
    Column("same_process", "flag", about="whether the blocks of the cores were compared by address"),
    Column("hours", "hours", null="it is not known", about="from the first core to the last"),
    Column("old_bytes", "bytes"),
    Column("now_bytes", "bytes"),
    Column("growth_bytes", "bytes"),
    Column("new_bytes", "bytes", null=_OTHER_RUN),
    Column("gone_bytes", "bytes", null=_OTHER_RUN),
    Column("survived_bytes", "bytes", null=_OTHER_RUN),
    Column("compared_count", "count", null=_OTHER_RUN, about="surviving blocks whose content was compared"),
    Column("changed_count", "count", null=_OTHER_RUN, about="those with other content"),
    Column("mapped_growth_bytes", "bytes"),
    Column("old_memory", "object", about="of the first core", fields=LEDGER),
    Column("memory", "object", about="of the last core", fields=LEDGER),
)
