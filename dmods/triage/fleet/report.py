"""The report about many dumps: buckets by how many died so, what they have in common, and what failed."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.sizes import human_size
from dmods.base.times import utc_minute
from dmods.report import Column, Report, Schema, Table, Value
from dmods.triage.fleet.buckets import Bucket, Found, Shared, buckets, shared
from dmods.triage.fleet.store import Dump, Store, rows_of
from dmods.triage.html import page

_LISTED = 20  # buckets in text
_FAILED = 5
_SECTIONS = 50  # buckets with a section of their own in HTML

_VERSION = Schema("version", "a version of the program", (Column("version"), Column("dumps", "count")))
_HOST = Schema("host", "a host", (Column("host"), Column("dumps", "count")))
_OF_BUCKET = Schema(
    "finding_of_bucket",
    "a finding that several dumps of a bucket have",
    (
        Column("kind"),
        Column("subject", null="it has none"),
        Column("dumps", "count"),
        Column("bytes", "bytes", about="in the median dump"),
    ),
)
_BUCKETS = Schema(
    "buckets",
    "dumps that died alike",
    (
        Column("number", "count", title="#"),
        Column("dumps", "count"),
        Column("percent", "percent", title="%"),
        Column("hosts", "count"),
        Column("first_seen", title="FIRST", about="UTC"),
        Column("last_seen", title="LAST", about="UTC"),
        Column("signature"),
        Column("program", hidden=True),
        Column("versions", "objects", hidden=True, fields=_VERSION),
        Column("host_names", "objects", hidden=True, fields=_HOST),
        Column("representative", hidden=True, about="the path of the dump with the most that is known"),
        Column("shared", "objects", hidden=True, fields=_OF_BUCKET),
        Column("members", "texts", hidden=True, about="the paths of the dumps"),
    ),
    when="for many dumps",
)
_SHARED = Schema(
    "shared",
    "a finding that several dumps have",
    (
        Column("dumps", "count"),
        Column("percent", "percent", title="%"),
        Column("bytes", "size", title="MIDDLE", about="in the median dump"),
        Column("kind"),
        Column("subject", title="ABOUT", null="it has none"),
    ),
    when="for many dumps, where there are some",
)
_REASONS = (Column("path"), Column("reason", null="it is not known"))
_FAILED_DUMPS = Schema("failed", "a dump without a report", _REASONS, when="for many dumps")
_CUT = Schema("cut", "a dump that is cut", _REASONS, when="for many dumps")
TABLES = (_BUCKETS, _SHARED, _CUT, _FAILED_DUMPS)
TOTALS = (
    Column("dumps", "count", when="for many dumps", about="with a report"),
    Column("buckets", "count", when="for many dumps"),
    Column("failed", "count", when="for many dumps"),
)
_LINES = (Column("line"),)


class Fleet:
    """Everything that the database says of the dumps."""

    def __init__(self, store: Store) -> None:
        everything = list(store.dumps())
        findings = list(store.findings())
        self.dumps: Sequence[Dump] = [dump for dump in everything if dump.reported]
        self.cut: Sequence[Dump] = [dump for dump in self.dumps if dump.reason is not None]
        self.failed: Sequence[Dump] = [dump for dump in everything if not dump.reported]
        self.buckets: Sequence[Bucket] = buckets(self.dumps, findings)
        by_dump: dict[str, list[Found]] = {}
        for each in findings:
            by_dump.setdefault(each[0], []).append(each)
        self.shared: Sequence[Shared] = shared(self.dumps, by_dump)

    @property
    def sentences(self) -> list[str]:
        """Return what all dumps say together: how many died where, and what they share."""
        hosts = len({dump.host for dump in self.dumps if dump.host})
        places = len(self.buckets)
        first = f"{_count(len(self.dumps), 'dump')}, {_count(places, 'place')}"
        lines = [first + (f", {_count(hosts, 'host')}." if hosts else ".")]
        if self.buckets and len(self.dumps) > 1:
            lines.append(_most(self.buckets, len(self.dumps)))
        for each in self.shared[:2]:
            size = f", {human_size(each.bytes)} in the median dump" if each.bytes else ""
            about = f" ({each.subject})" if each.subject else ""
            lines.append(f"{each.dumps:,} of them have the same finding: {each.kind}{about}{size}.")
        if self.cut:
            lines.append(f"{_count(len(self.cut), 'dump')} {'is' if len(self.cut) == 1 else 'are'} cut.")
        if self.failed:
            lines.append(f"{_count(len(self.failed), 'dump')} had no report.")
        return lines


def _most(found: Sequence[Bucket], dumps: int) -> str:
    """Return where most dumps died; or how many places have as many, if none has more than the others."""
    most = found[0]
    number, share = len(most.dumps), len(most.dumps) / dumps
    alike = sum(len(each.dumps) == number for each in found)
    if alike > 1:
        return f"No place has more dumps than the others: {alike:,} have {_count(number, 'dump')} each ({share:.0%})."
    how = "Most died of" if share > 0.5 else "The largest group died of"
    return f"{how} {most.signature}: {number:,} ({share:.0%})."


def fleet_report(fleet: Fleet) -> Report:
    """Return the report as text and JSON."""
    report = Report()
    report.tables.append(Table("verdict", _LINES, [(line,) for line in fleet.sentences], style="plain", only="text"))
    rows = [_row(number, bucket, len(fleet.dumps)) for number, bucket in enumerate(fleet.buckets, 1)]
    footer = [f"... {len(rows) - _LISTED} more: --json or -o fleet.html has them"] if len(rows) > _LISTED else []
    report.tables.append(Table("buckets_text", _BUCKETS.columns, rows[:_LISTED], footer=footer, only="text"))
    report.tables.append(_BUCKETS.table(rows, only="json"))
    for number, bucket in enumerate(fleet.buckets[:3], 1):
        one = bucket.representative
        lines = [(f"{number}. {bucket.signature}: look at {one.path}",)]
        lines += [(f"   {_common(each, len(bucket.dumps))}",) for each in bucket.shared[:2]]
        report.tables.append(Table(f"bucket_{number}", _LINES, lines, style="plain", joined=number > 1, only="text"))
    alike = [_shared_row(each, len(fleet.dumps)) for each in fleet.shared]
    if alike:
        report.tables.append(_SHARED.table(alike, title="What the dumps have in common"))
    _reasons(report, _CUT, "Cut", fleet.cut)
    _reasons(report, _FAILED_DUMPS, "Without a report", fleet.failed)
    report.totals = {"dumps": len(fleet.dumps), "buckets": len(fleet.buckets), "failed": len(fleet.failed)}
    return report


def _reasons(report: Report, schema: Schema, title: str, dumps: Sequence[Dump]) -> None:
    """Add a table with what is wrong with each of the dumps: all of it in JSON, the first ones as text."""
    rows = [(dump.path, dump.reason) for dump in dumps]
    if rows:
        left = len(rows) - _FAILED
        footer = [f"... {left} more"] if left > 0 else []
        report.tables.append(schema.table(rows[:_FAILED], title=title, footer=footer, only="text"))
    report.tables.append(schema.table(rows, only="json"))


def fleet_html(fleet: Fleet, store: Store, name: str, json: str) -> str:
    """Return the report as one HTML page. ``json`` is the object that --json prints."""
    stacks: dict[str, list[str]] = {}
    for bucket in fleet.buckets[:_SECTIONS]:
        told = store.report(bucket.representative.id)
        if told is not None:
            stacks[bucket.representative.id] = [row["line"] for row in rows_of(told, "stack")]
    return page("fleet.html.j2", "", json, title=f"triage of {name}", fleet=fleet, stacks=stacks, most=_SECTIONS)


def _row(number: int, bucket: Bucket, total: int) -> tuple[Value, ...]:
    return (
        number,
        len(bucket.dumps),
        100 * len(bucket.dumps) / total,
        len({dump.host for dump in bucket.dumps if dump.host}),
        utc_minute(bucket.dumps[0].seen),
        utc_minute(bucket.dumps[-1].seen),
        bucket.signature,
        bucket.programs[0][0],
        [{"version": name, "dumps": count} for name, count in bucket.versions],
        [{"host": name, "dumps": count} for name, count in bucket.hosts],
        bucket.representative.path,
        [each.__dict__ for each in bucket.shared],
        [dump.path for dump in bucket.dumps],
    )


def _shared_row(each: Shared, total: int) -> tuple[Value, ...]:
    return (each.dumps, 100 * each.dumps / total, each.bytes, each.kind, each.subject)


def _common(each: Shared, total: int) -> str:
    about = f" ({each.subject})" if each.subject else ""
    size = f", {human_size(each.bytes)} in the median dump" if each.bytes else ""
    return f"{each.dumps:,} of {total:,} have {each.kind}{about}{size}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
