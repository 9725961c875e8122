"""The database of triaged dumps: SQLite, a row for each dump, a row for each finding.

The key of a dump is its content, so a dump that lies in two folders has one row, and a run that was ended goes on where
it was. Every dump is committed when it is done.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Optional

from dmods.base.dataclass import dataclass, field_names
from dmods.errors import UserError
from dmods.triage.fleet.content import Origin
from dmods.triage.fleet.examine import Examined
from dmods.triage.signature import heap_key, signature

VERSION = 1
_TABLES = """
CREATE TABLE dumps (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, host TEXT NOT NULL, seen REAL NOT NULL, version TEXT NOT NULL,
    kind TEXT, program TEXT, build_id TEXT, pid INTEGER, ended TEXT, first TEXT,
    signature TEXT, exact TEXT, loose TEXT, heap TEXT, memory INTEGER, seconds REAL NOT NULL,
    reason TEXT, report BLOB
);
CREATE TABLE findings (
    dump TEXT NOT NULL REFERENCES dumps (id) ON DELETE CASCADE, number INTEGER NOT NULL, kind TEXT NOT NULL,
    severity TEXT NOT NULL, confidence TEXT NOT NULL, what TEXT NOT NULL, subject TEXT, weight INTEGER NOT NULL,
    PRIMARY KEY (dump, number)
);
"""


@dataclass(frozen=True)
class Dump:
    """A row of the table ``dumps``. ``reason`` says why there is no report, or that the dump is cut.

    Where there is no report, all that comes from it is None.
    """

    id: str
    path: str
    host: str
    seen: float
    version: str
    kind: Optional[str]
    program: Optional[str]
    build_id: Optional[str]
    pid: Optional[int]
    ended: Optional[str]
    first: Optional[str]
    signature: Optional[str]
    exact: Optional[str]
    loose: Optional[str]
    heap: Optional[str]
    memory: Optional[int]
    seconds: float
    reason: Optional[str]

    @property
    def reported(self) -> bool:
        """Return whether there is a report."""
        return self.reason is None or self.kind is not None


_COLUMNS = field_names(Dump)


class Store:
    """An open database. Raises UserError where the file is no such database, or cannot be written."""

    def __init__(self, path: str, make: bool = True) -> None:
        mode = "rwc" if make else "rw"
        try:
            self._open = sqlite3.connect(f"file:{_quoted(path)}?mode={mode}", uri=True, isolation_level=None)
            self._open.execute("PRAGMA foreign_keys = ON")
            (version,) = self._open.execute("PRAGMA user_version").fetchone()
            if version == 0 and make and not self._open.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._open.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
                version = VERSION
        except sqlite3.Error as error:
            raise UserError(
                f"{path} cannot be opened: {error}", "give the path of a database of dmods triage"
            ) from None
        if version != VERSION:
            self._open.close()
            raise UserError(f"{path} is not a database of this dmods triage", "name another file: it is made")

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def done(self, again: bool = False) -> set[str]:
        """Return the keys of the dumps that need no work. ``again``: those without a report do."""
        where = " WHERE report IS NOT NULL" if again else ""
        return {key for (key,) in self._open.execute(f"SELECT id FROM dumps{where}")}

    def add(self, key: str, path: str, origin: Origin, found: Examined) -> None:
        """Write a dump and its findings at once."""
        row = {**dict.fromkeys(_COLUMNS), "id": key, "path": path, **origin._asdict(), "seconds": found.seconds}
        findings: list[Mapping[str, Any]] = []
        blob = None
        if found.report is not None:
            findings = rows_of(found.report, "findings")
            row.update(_said(found.report, findings))
            blob = zlib.compress(json.dumps(found.report).encode(), 6)
        row["reason"] = found.reason or _cut(found.report)
        marks = ", ".join("?" * (len(_COLUMNS) + 1))
        with closing(self._open.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("DELETE FROM dumps WHERE id = ?", (key,))
            values = (*(_storable(row[name]) for name in _COLUMNS), blob)
            cursor.execute(f"INSERT INTO dumps ({', '.join(_COLUMNS)}, report) VALUES ({marks})", values)
            cursor.executemany(
                "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(key, *map(_storable, _finding(each))) for each in findings],
            )
            cursor.execute("COMMIT")

    def dumps(self) -> Iterator[Dump]:
        """Yield every dump, the oldest first."""
        for row in self._open.execute(f"SELECT {', '.join(_COLUMNS)} FROM dumps ORDER BY seen, id"):
            yield Dump(*row)

    def findings(self) -> Iterator[tuple[str, str, str, Optional[str], int]]:
        """Yield (dump, kind, severity, subject, weight) of every finding."""
        yield from self._open.execute(
            "SELECT dump, kind, severity, subject, weight FROM findings ORDER BY dump, number"
        )

    def report(self, key: str) -> Optional[dict[str, Any]]:
        """Return the whole report about a dump, or None."""
        row = self._open.execute("SELECT report FROM dumps WHERE id = ?", (key,)).fetchone()
        if row is None or row[0] is None:
            return None
        told: dict[str, Any] = json.loads(zlib.decompress(row[0]))
        return told


def rows_of(report: Mapping[str, Any], table: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table of a report."""
    return next((each["rows"] for each in report["tables"] if each["name"] == table), [])


def _said(report: Mapping[str, Any], findings: list[Mapping[str, Any]]) -> dict[str, Any]:
    totals = report["totals"]
    crash: Mapping[str, Any] = next(iter(rows_of(report, "crash")), {})
    ended = crash.get("ended") or ""
    fatal = next((each["kind"] for each in findings if each["severity"] == "fatal"), None)
    named = signature(totals.get("program"), fatal, ended, rows_of(report, "places"))
    return {
        "kind": totals["kind"],
        "program": totals.get("program"),
        "build_id": totals.get("build_id"),
        "pid": totals.get("pid"),
        "ended": ended or None,
        "first": findings[0]["kind"] if findings else None,
        "signature": named.text,
        "exact": named.exact,
        "loose": named.loose,
        "heap": heap_key(findings),
        "memory": totals.get("memory_bytes"),
    }


def _cut(report: Optional[Mapping[str, Any]]) -> Optional[str]:
    """Return that the dump is cut, or None."""
    lost = report["totals"].get("missing_bytes") if report is not None else None
    return f"it is cut: {lost:,} bytes that it promises are missing" if lost else None


def _finding(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("number", "kind", "severity", "confidence", "what", "subject", "weight")
    return tuple(row.get(name) for name in names)


def _storable(value: Any) -> Any:
    """Return a value that SQLite takes: strings of a dump may hold what is no Unicode, integers may be too long."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return (1 << 63) - 1
    return value


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
