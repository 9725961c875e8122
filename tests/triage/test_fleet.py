"""Triage of many dumps: buckets, a database that goes on where it was, and one report."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dmods.base.dataclass import field_names
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.triage.fleet.buckets import Bucket, buckets
from dmods.triage.fleet.content import content_id, dumps, origin
from dmods.triage.fleet.examine import examine
from dmods.triage.fleet.receive import receive
from dmods.triage.fleet.store import Dump, Store, rows_of
from dmods.triage.signature import plain, signature
from fixtures import answers, keeping
from fixtures.cores import take
from fixtures.limits import HANG
from fixtures.packing import FORMS
from tests.corekit import compile_c, kernel_core
from tests.dumpkit import minidump
from tests.triage import faults50

RUNS = 1  # of each fault and build; DMODS_FLEET_RUNS=5 makes a thousand dumps


def test_a_minidump_among_the_dumps_of_a_folder(tmp_path: Path) -> None:
    """It names the function that died, as the core does of which it was made."""
    core = take("shapes").core
    (tmp_path / "lldb.dmp").write_bytes(minidump(CoreFile(str(core)), wide=False))
    assert [path for _folder, path in dumps([str(tmp_path)])] == [str(tmp_path / "lldb.dmp")]
    found = examine(str(tmp_path / "lldb.dmp"))
    whole = examine(str(core))
    assert found.report is not None, found.reason
    assert whole.report is not None
    assert found.report["totals"]["program"] == whole.report["totals"]["program"]


def test_dumps_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.core").symlink_to(take("shapes").core)
    monkeypatch.chdir(tmp_path)
    assert origin("", "a.core").host == ""
    done = answers.dmods("triage", "a.core", "a.core", "-s", "nosuch", cwd=tmp_path)
    assert done.returncode == 1
    assert "-s nosuch: it cannot be read" in done.stderr


def dump(key: str, **values: Any) -> Dump:
    empty: dict[str, Any] = dict.fromkeys(field_names(Dump))
    return Dump(
        **{**empty, "id": key, "path": f"/{key}", "host": "", "seen": 1.0, "version": "", "seconds": 1, **values}
    )


def place(function: Any, offset: int = 1, inlined: tuple[str, ...] = (), **values: Any) -> Mapping[str, Any]:
    row = {"module": "prog", "build_id": "aa", "offset": hex(offset), "function": function, "inlined": inlined}
    return {**row, "runtime": False, **values}


def test_the_runtime_names_no_crash() -> None:
    runtime = place("abort", module="libc.so.6", build_id="cc", runtime=True)
    found = signature("prog", "abort", "SIGABRT", [runtime, place("eat(char*)"), place("main", 2), place("_start", 3)])
    assert found.text == "abort | eat | main"
    assert found.loose is not None
    other = signature("prog", "abort", "SIGABRT", [place("eat(char*) [clone .cold]"), place("main", 9, build_id="bb")])
    assert other.exact != found.exact


def test_a_stripped_file_has_the_same_exact_key_and_no_loose_one() -> None:
    named = [place("raise", module="libc.so.6", runtime=True), place("eat", 16), place("main", 32), place("_start", 48)]
    bare = [place(None, int(row["offset"], 16), module=row["module"]) for row in named]
    one, other = (signature("prog", None, "SIGSEGV SEGV_MAPERR at 0x10", rows) for rows in (named, bare))
    assert one.exact == other.exact
    assert (one.loose is None, other.loose is None) == (False, True)
    assert other.text == "SIGSEGV SEGV_MAPERR | libc.so.6+0x1 | prog+0x10 | prog+0x20"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("grow(int, char const*)", "grow"),
        ("ns::Box<int>::put(int) const", "ns::Box<int>::put"),
        ("work.isra.0", "work"),
        ("work.part.0.cold", "work"),
        ("core::run::h0123456789abcdef", "core::run"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("main", "main"),
    ],
)
def test_names_without_what_compilers_add(name: str, short: str) -> None:
    assert plain(name) == short


def test_a_chain_of_keys_joins_dumps() -> None:
    rows = [
        dump("a", exact="1", loose="x", signature="s"),
        dump("b", exact="1"),
        dump("c", exact="2", loose="x", signature="s"),
        dump("d", exact="3", loose="y", signature="t"),
        dump("e"),
        dump("f", reason="corrupt"),
    ]
    found = buckets(rows, [])
    assert [[each.id for each in bucket.dumps] for bucket in found] == [["a", "b", "c"], ["e"], ["d"]]
    assert found[0].signature == "s"


def test_what_dumps_share_is_the_middle_of_its_bytes() -> None:
    rows = [dump(key, exact="1") for key in "abc"]
    findings = [(key, "leak", "serious", "grow", size) for key, size in (("a", 10), ("b", 30), ("c", 20))]
    (bucket,) = buckets(rows, [*findings, ("a", "null-pointer", "fatal", "x", 0), ("b", "arenas", "waste", None, 1)])
    (one,) = bucket.shared
    assert (one.kind, one.subject, one.dumps, one.bytes) == ("leak", "grow", 3, 20)


def test_hosts_times_and_side_files(tmp_path: Path) -> None:
    core = tmp_path / "web1" / "sub" / "core.1"
    core.parent.mkdir(parents=True)
    core.write_bytes(b"KDUMP   ")
    (tmp_path / "notes.txt").write_text("no dump")
    assert list(dumps([str(tmp_path)])) == [(str(tmp_path), str(core))]
    assert origin(str(tmp_path), str(core)).host == "web1"
    core.with_name("core.1.dmods.json").write_text('{"host": "db2", "time": 12.5, "version": "1.2"}')
    assert tuple(origin(str(tmp_path), str(core))) == ("db2", 12.5, "1.2")
    core.with_name("core.1.dmods.json").write_text("[1")
    assert origin(str(tmp_path), str(core)).host == "web1"
    assert len(content_id(str(core))) == 32


def keep_in_all(core: Path, folder: Path) -> dict[str, Path]:
    """Keep the core as apport, abrt and systemd do, and compressed. Return the dumps by their hosts."""
    keeping.apport(core, folder / "web1" / "x.crash", {"Package": "shop 7", "ProcLimits": keeping.LIMITS})
    abrt = {"type": "CCpp", "hostname": "db2", "time": "1700000100", "package": "shop-8", "limits": keeping.LIMITS}
    keeping.abrt(core, folder / "problems" / "ccpp-1", abrt)
    (folder / "problems" / "ccpp-1" / "core_backtrace").write_text("")
    systemd = keeping.systemd(core, folder)
    (folder / "web4").mkdir()
    (folder / "web4" / "core.xz").write_bytes(FORMS["xz"](core.read_bytes()))
    (folder / "web4" / "y.crash").write_text("ProblemType: Package\nPackage: shop\n")
    os.mkfifo(folder / "web4" / "core.pipe")
    return {
        "web1": folder / "web1" / "x.crash",
        "db2": folder / "problems" / "ccpp-1" / "coredump",
        "web-3": systemd,
        "web4": folder / "web4" / "core.xz",
    }


def test_reports_problems_and_compressed_cores_are_dumps(tmp_path: Path) -> None:
    core = tmp_path / "core"
    core.write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\4\0" + bytes(200))
    folder = tmp_path / "dumps"
    kept = keep_in_all(core, folder)
    found = {origin(named, path).host: (path, origin(named, path)) for named, path in dumps([str(folder)])}
    assert {host: path for host, (path, _origin) in found.items()} == {host: str(path) for host, path in kept.items()}
    assert tuple(found["db2"][1]) == ("db2", 1700000100.0, "shop-8")
    assert (found["web-3"][1].seen, found["web1"][1].version) == (1700000000.0, "shop 7")
    assert [path for _named, path in dumps([str(folder / "problems/ccpp-1")])] == [str(kept["db2"])]


@pytest.mark.thorough("it looks at four dumps")
def test_every_keeping_has_the_report_of_the_plain_core(tmp_path: Path) -> None:
    small = take("corrupt", mode="overrun")
    kept = keep_in_all(small.core, tmp_path / "dumps")
    (tmp_path / "cache").mkdir()  # what is known of debug information is kept there
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    before = sorted(tmp_path.iterdir())
    done = answers.dmods("triage", tmp_path / "dumps", "--db", tmp_path / "db", env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "db"])
    store = Store(str(tmp_path / "db"))
    rows = {one.host: one for one in store.dumps()}
    assert {host: one.path for host, one in rows.items()} == {k: str(v) for k, v in kept.items()}
    (bucket,) = buckets(rows.values(), store.findings())
    assert len(bucket.dumps) == 4
    plain_report = answers.typed("triage", small.core)
    for host, one in rows.items():
        report = store.report(one.id)
        assert report is not None
        assert report["target"] == one.path
        assert rows_of(report, "findings") == rows_of(plain_report, "findings")
        identity = {row["name"]: row["text"] for row in rows_of(report, "identity")}
        keeper = {"web1": "apport", "db2": "abrt", "web-3": "systemd-coredump"}.get(host)
        assert identity.get("kept by") == keeper
        assert ("limits" in identity) == (host in ("web1", "db2"))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("this is no database, and it is long enough for a header of one" * 9)
    for words in (["--report", "db"], ["--report", "none"], ["--db", "db", "."]):
        done = answers.dmods("triage", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 2
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (x)")
    done = answers.dmods("triage", "--report", "other", cwd=tmp_path)
    assert "is not a database of this dmods triage" in done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of fifty faults, each built in every way, on four hosts; a corrupt one among them."""
    where = tmp_path_factory.mktemp("fleet")
    built = faults50.build(where)
    runs = int(os.environ.get("DMODS_FLEET_RUNS", RUNS))
    for number in range(faults50.COUNT):
        for host, program in built.items():
            for run in range(runs):
                faults50.take(program, number, where / "dumps" / host / f"core.{number}.{run}")
    (where / "dumps" / "plain" / "core.corrupt").write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\4\0" + bytes(200))
    return where


def lines_of(words: list[str], where: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dmods", "triage", *words],
        cwd=where,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        start_new_session=True,
    )


@pytest.mark.thorough("it takes a core")
def test_cut_and_empty_files_are_rows_with_reasons(tmp_path: Path) -> None:
    source = tmp_path / "fault.c"
    source.write_text("int main(void) { return *(volatile int *)8; }")
    folder = tmp_path / "dumps" / "web1"
    folder.mkdir(parents=True)
    core = kernel_core(compile_c(source, tmp_path / "fault", "-O0"), tmp_path)
    whole = core.read_bytes()
    lost = 12_345
    files = {"core.whole": whole, "core.cut": whole[:-lost], "core.headers": whole[:100], "core.empty": b""}
    for name, data in {**files, "dump.empty": b"", "notes": b""}.items():
        (folder / name).write_bytes(data)
    done = answers.dmods("triage", "dumps", "--db", "db", "-o", "fleet.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    store = Store(str(tmp_path / "db"))
    rows = {Path(one.path).name: one for one in store.dumps()}
    assert rows.keys() == {*files, "dump.empty"}
    assert rows["core.whole"].reason is None
    assert rows["core.cut"].reason == f"it is cut: {lost:,} bytes that it promises are missing"
    for name in ("core.empty", "dump.empty"):
        assert "is empty" in str(rows[name].reason)
    assert "program headers of the core are missing" in str(rows["core.headers"].reason)
    assert {name for name, one in rows.items() if one.reported} == {"core.whole", "core.cut"}
    # The crash of a cut dump is that of the whole one.
    (bucket,) = buckets(rows.values(), store.findings())
    assert {Path(one.path).name for one in bucket.dumps} == {"core.whole", "core.cut"}
    assert "1 dump is cut. 3 dumps had no report." in " ".join(done.stdout.split())
    page = (tmp_path / "fleet.html").read_text()
    assert all(name in page for name in rows)
    again = answers.dmods("triage", "dumps", "--db", "db", "--retry", cwd=tmp_path)
    assert "3 new dumps, 3 of them without a report, 2 known already" in again.stderr


def count(database: Path) -> int:
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
            return int(opened.execute("SELECT count(*) FROM dumps").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def faults_of(bucket: Bucket) -> set[str]:
    return {one.path.rpartition("core.")[2].partition(".")[0] for one in bucket.dumps}


@pytest.mark.thorough("it takes two hundred cores")
def test_fifty_faults_are_fifty_buckets_though_the_run_was_killed(folder: Path) -> None:
    database = folder / "triage.sqlite"
    first = lines_of(["dumps", "--db", str(database)], folder)
    ends = time.monotonic() + HANG
    while count(database) < 20 and first.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    assert first.poll() is None, "it was over before it could be killed"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = count(database)
    files = len(list(dumps([str(folder / "dumps")])))
    assert 20 <= before < files
    done = answers.dmods("triage", "dumps", "--db", database, "-o", "fleet.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"{before:,} known already" in done.stderr
    store = Store(str(database))
    everything = list(store.dumps())
    assert len(everything) == files
    assert [Path(one.path).name for one in everything if one.reason is not None] == ["core.corrupt"]
    found = buckets(everything, store.findings())
    places: defaultdict[str, int] = defaultdict(int)
    for bucket in found:
        assert len(faults_of(bucket)) == 1, (bucket.signature, faults_of(bucket))
        places[next(iter(faults_of(bucket)))] += 1
    assert {fault: number for fault, number in places.items() if number > 1} == {}
    assert len(found) == faults50.COUNT
    assert all(len(bucket.hosts) == len(faults50.BUILDS) for bucket in found)
    assert "fault_7" in (folder / "fleet.html").read_text()


@pytest.mark.thorough("it starts a Dask cluster")
def test_dask_gives_the_same_database(folder: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    some = tmp_path / "some"
    some.mkdir()
    for path in sorted((folder / "dumps" / "plain").glob("core.1*.0"))[:8]:
        os.link(path, some / path.name)
    rows = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        for words in ([], ["--dask", cluster.scheduler_address]):
            database = tmp_path / f"{len(words)}.sqlite"
            done = answers.dmods("triage", some, "--db", database, *words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            with sqlite3.connect(database) as opened:
                select = "SELECT id, path, signature, exact, loose, heap, memory, first FROM dumps ORDER BY id"
                rows.append(opened.execute(select).fetchall())
    assert rows[0] == rows[1]
    assert len(rows[0]) == 8


@pytest.mark.thorough("it takes a core")
def test_a_core_from_standard_input(folder: Path, tmp_path: Path) -> None:
    """The kernel gives it to the program in core_pattern, as root, with what it says of the process."""
    core = folder / "dumps" / "plain" / "core.3.0"
    words = ["-", "--db", tmp_path / "db", "--spool", tmp_path / "spool", "--exe", "!usr!bin!faults", "--pid", "77"]
    words += ["--time", "1700000000", "--host", "web7", "--user", "root"]
    with core.open("rb") as source:
        done = answers.dmods("triage", *words, "--version", "1.2", cwd=tmp_path, stdin=source)
    assert done.returncode == 0, done.stderr
    (kept,) = (path for path in (tmp_path / "spool").iterdir() if not path.name.endswith(".json"))
    assert kept.name == "core._usr_bin_faults.77.1700000000"
    assert kept.read_bytes() == core.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    (one,) = Store(str(tmp_path / "db")).dumps()
    assert (one.host, one.seen, one.version, one.first) == ("web7", 1700000000.0, "1.2", "assertion")


def test_a_dump_that_is_too_long_is_cut(tmp_path: Path) -> None:
    zeros = tmp_path / "zeros"
    zeros.write_bytes(b"\x7fELF" + bytes(6 << 20))
    with zeros.open("rb") as source:
        path = receive(source, str(tmp_path), {"exe": "../../etc/passwd", "pid": "1;2", "time": "x"}, 5 << 20)
    kept = Path(path)
    assert kept.parent == tmp_path
    assert kept.stat().st_size == 5 << 20
    assert kept.stat().st_blocks * 512 < 1 << 20
    with zeros.open("rb") as source, pytest.raises(UserError, match="cannot be written"):
        receive(source, str(tmp_path / "none"), {})
    with Path(os.devnull).open("rb") as source, pytest.raises(UserError, match="no dump arrives"):
        receive(source, str(tmp_path), {})
