"""The report: text on one screen, HTML that no string of a dump can break, JSON that says the same."""

from __future__ import annotations

import hashlib
import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import CERTAIN, FATAL, SERIOUS, CannotCheck, Check, Evidence, Finding, Parties
from dmods.output.render import render
from dmods.output.text import table_text
from dmods.report import Report
from dmods.triage.answer import FOUND, NOT_RUN, PASSED, Crash, Line, Memory, Part, Result, Triage
from dmods.triage.html import embedded, html
from dmods.triage.process import triage_process
from dmods.triage.report import triage_report
from dmods.triage.runner import Runner, chosen, discover
from fixtures import answers, cores, planted

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x07",
    '" onmouseover="alert(1)',
    "\u202eright to left",
    "a" * 1_000_000,
)


class _Subject:
    path: Optional[str] = "/tmp/<b>core</b>"
    pid: Optional[int] = 7
    notes: list[str] = ["a note with </script>"]  # noqa: RUF012


class _Elements(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Optional[str]]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def _hostile() -> Triage:
    findings = [
        Finding(
            "kind",
            FATAL,
            CERTAIN,
            text,
            f"`{text}`",
            [Evidence(4096, text)],
            (text,),
            check="death",
            alternative=text,
            parties=Parties(text, text, text, text),
        )
        for text in HOSTILE
    ]
    crash = Crash(HOSTILE[0], False, [Line(text[:20], text) for text in HOSTILE], list(HOSTILE))
    lines = [Line(text[:20], text) for text in HOSTILE]
    results = [Result("death", state, text, "rule") for text in HOSTILE for state in (PASSED, FOUND, NOT_RUN)]
    memory = Memory([Part(HOSTILE[1], 2), Part("rest", 1)], HOSTILE[0])
    return Triage(crash, memory, findings, results=results, identity=lines, trust=lines)


def _page(found: Triage) -> tuple[str, str]:
    report = triage_report(found, "process")
    said = json.dumps({"strings": HOSTILE})
    return html(found, report, _Subject(), said), said


def test_hostile_strings_are_inert() -> None:
    page, said = _page(_hostile())
    parsed = _Elements(page)
    assert not {"img", "iframe", "object", "link", "form"} & {tag for tag, _attributes in parsed.elements}
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert not any(name.startswith("on") for _tag, attributes in parsed.elements for name in attributes)
    assert not any(name in ("src", "style") for _tag, attributes in parsed.elements for name in attributes)
    assert not {"\x1b", "\u202e", "\x07"} & set(page)
    inside = re.search(r'id="dmods-report">(.*?)</script>', page, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == json.loads(said)
    assert len(page) - len(embedded(said)) < 200_000


def test_the_policy_allows_only_the_pages_own_style_and_script() -> None:
    page, _said = _page(_hostile())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in allowed
    for tag in ("style", "script"):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(body) == 1
        digest = b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in allowed


def test_a_long_report_says_what_it_leaves_out() -> None:
    """The verdict and the crash stay: they are longer than a screen here."""
    texts = [
        "".join(table_text(each, str, 80))
        for each in triage_report(_hostile(), "process").tables
        if each.only != "json"
    ]
    assert texts[0].startswith("6 findings.")
    assert texts[1].startswith("The crash")
    assert " ".join(texts[-1].split()).startswith("Not shown: what could not be known, and ")
    assert texts[-1].endswith("(-v shows all)\n")
    whole = [each for each in triage_report(_hostile(), "process", whole=True).tables if each.only != "json"]
    assert {each.name for each in whole} >= {"verdict", "crash", "bar", "memory_text", "others", "ok"}


def _busy_kernel() -> Triage:
    """Return a triage as of a kernel that hangs: long sentences, commands that name a dump and its vmlinux."""
    what = (
        "CPU 1 takes no interrupts for at least 41.6s, with interrupts off: it runs irqsoff (101) in f+0x12, called by "
        "hang_write, proc_reg_write, vfs_write; waiting for it: 1 call from other CPUs, RCU's grace period for 39.5s"
    )
    typed = tuple(f"dmods {name} dump.202611281200 -s /usr/lib/debug/boot/vmlinux-6.1.0-50-amd64" for name in "abc")
    remedy = "look at the loop in this function or in its callers, and at what it waits for"
    findings = [
        Finding("cpu-no-interrupts", SERIOUS, CERTAIN, what, remedy, [Evidence(4096, "f+0x12")] * 2, typed)
        for _each in range(4)
    ]
    facts = [
        Line("kernel", "6.1.0-50-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)"),
        Line("tainted", "OE (out-of-tree module, unsigned module)"),
    ]
    results = [Result(f"check{number}", PASSED, "a value", "a rule") for number in range(20)]
    crash = Crash("the kernel had not panicked when the dump was taken", True, facts)
    return Triage(crash, Memory([Part("free", 2), Part("rest", 1)], "memory"), findings, results=results)


@pytest.mark.parametrize("notes", [[], ["12 of 12 modules have no debugging information (see doctor)"]])
def test_many_long_findings_and_the_note_fit_on_one_screen(notes: list[str]) -> None:
    tables = [each for each in triage_report(_busy_kernel(), "kernel", notes=notes).tables if each.only != "json"]
    texts = ["".join(table_text(each, str, 80)) for each in tables]
    text = "".join(f"{'' if table.joined else chr(10)}{each}" for table, each in zip(tables, texts)).strip("\n")
    assert text.count("\n") + 1 + len(notes) <= 23, text
    assert max(map(len, text.split("\n"))) <= 80
    # All findings are named, and the first one has its whole sentence, its remedy and a command.
    assert [line[:2] for line in text.split("\n") if line[1:2] == "."] == ["1.", "2.", "3.", "4."]
    said = " ".join(text.split())
    assert "RCU's grace period for 39.5s. do (likely): look at the loop" in said
    assert "type: dmods a dump.202611281200" in said
    assert "(-v shows all)" in said


def test_a_note_that_was_printed_is_not_repeated_for_people() -> None:
    report, out, err = Report(notes=["one", "two"]), StringIO(), StringIO()
    render(report, "triage", None, False, out, err, known={"one"})
    assert err.getvalue() == "note: two\n"
    render(report, "triage", None, True, out, err, known={"one"})
    assert json.loads(out.getvalue())["notes"] == ["one", "two"]


def test_hostile_text_stays_on_one_screen() -> None:
    report = triage_report(_hostile(), "process")
    rows = [row for table in report.tables if table.only != "json" for row in table.rows]
    assert max(len(str(cell)) for row in rows for cell in row) < 1000
    assert len(rows) < 60


@pytest.mark.parametrize("sizes", [(1, 1, 1), (0, 0), (1,), (1, 999_999), (33, 33, 34), (1 << 60, 3, 5)])
def test_the_parts_of_memory_add_up_to_100_percent(sizes: tuple[int, ...]) -> None:
    percents = Memory([Part("part", size) for size in sizes], "memory").percents()
    assert sum(percents) == (100 if any(sizes) else 0)


class _NoFacts:
    budgets = {"slow": 0.1, "missing": 1.0}  # noqa: RUF012

    def provide(self, name: str) -> None:
        if name == "missing":
            raise CannotCheck("the dump lacks it", "take another")
        time.sleep(60)


def _forever(_facts: object) -> Iterator[Finding]:
    yield Finding("first", FATAL, CERTAIN, "found before the time was over", "wait")
    while True:
        time.sleep(1)


def test_a_check_that_takes_too_long_says_so_in_a_line() -> None:
    found = Triage()
    checks = [
        Check("forever", "", _forever, seconds=0.2),
        Check("lacking", "", _forever, needs=("missing",)),
        Check("waiting", "", _forever, needs=("slow",)),
    ]
    began = time.monotonic()
    Runner(_NoFacts(), None).run(checks, found)
    assert time.monotonic() - began < answers.HANG
    assert [each.kind for each in found.findings] == ["first"]
    said = {one.what: one.why for one in found.unknown}
    assert said["lacking"] == "the dump lacks it"
    assert "longer than 0.2 s" in said["forever"]
    assert "slow took longer" in said["waiting"]


@pytest.mark.parametrize(
    ("given", "why"), [(0.1, "the time that --seconds gives was over"), (1.0, "longer than 0.5 s")]
)
def test_seconds_are_for_all_checks_together(given: float, why: str) -> None:
    """A check has half of what is left, if its own time is shorter."""
    found = Triage()
    checks = [Check("forever", "", _forever, seconds=0.2), Check("again", "", _forever, seconds=0.01)]
    Runner(_NoFacts(), given).run(checks, found)
    assert why in found.unknown[0].why
    assert found.unknown[0].help == "a larger --seconds N gives more time"
    assert sorted(name for one in found.unknown for name in one.what.split(", ")) == ["again", "forever"]


def test_every_check_is_found_by_its_file() -> None:
    checks = discover("dmods.triage.checks")
    folder = Path(__file__).parents[2] / "dmods" / "triage" / "checks"
    assert {check.name for check in checks} == {path.stem for path in folder.glob("[!_]*.py")}
    assert [check.name for check in chosen(checks, "leaks,death")] == ["death", "leaks"]
    assert all(check.rule for check in checks)


@pytest.mark.thorough("it starts dmods twice")
def test_triage_from_outside(tmp_path: Path) -> None:
    core = cores.take("frames", mode="null").core
    page, said = tmp_path / "report.html", tmp_path / "report.json"
    text = answers.printed("triage", core, "-o", page, "--json", said)
    assert text.startswith("1 finding. SIGSEGV")
    assert "null-pointer" in text
    assert len(text.splitlines()) <= 23
    assert "what could not be known" in text
    unknown = "open files, sockets, rlimits, cgroup, uptime: a core does not have them; stdio has descriptors"
    assert unknown in answers.printed("triage", core, "-v")
    inside = re.search(r'id="dmods-report">(.*?)</script>', page.read_text(), re.DOTALL)
    assert inside is not None
    answer = json.loads(said.read_text())
    assert json.loads(inside[1]) == answer == answers.typed("triage", core)
    assert answer["totals"]["first"] == "null-pointer"
    assert sum(row["percent"] for row in answers.by_name(answer)["memory"]) == 100


@pytest.mark.thorough("it makes a core of a fault")
def test_redact_leaves_out_what_memory_holds() -> None:
    core = CoreFile(str(planted.core("c++", "exception")))
    shown, redacted = triage_process(core), triage_process(core, private=True)
    assert "order 7" in shown.findings[0].what
    assert "OrderError" in redacted.findings[0].what
    assert not any("order 7" in each.what for each in redacted.findings)


# Programs at work (docs/SOAK.md), but for those whose packages are very large, and those that are built first.
HEALTHY = (
    "bash", "cc1plus", "erlang", "gawk", "gdb", "git", "guile", "haproxy", "lua", "lua mimalloc", "memcached", "nginx",
    "node", "perl", "perl mimalloc", "php", "postgres", "python3", "python3 malloc", "qemu", "redis", "redis mimalloc",
    "ruby", "sqlite3", "tcl", "vim",
)  # fmt: skip


@pytest.mark.thorough("it installs and opens real programs")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_has_no_finding(name: str) -> None:
    from fixtures import programs_at_work

    programs_at_work.install([name])
    with TemporaryDirectory() as folder:  # PostgreSQL does not run as root, who alone may enter pytest's folders
        dumped = programs_at_work.snapshot(programs_at_work.programs()[name], Path(folder), 1)
        found = triage_process(CoreFile(str(dumped.core)))
    assert found.findings == []
    assert found.missed == []
    assert all(each.value for each in found.results)
