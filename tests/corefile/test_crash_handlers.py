"""Cores in the keeping of systemd, apport and abrt: each is found, opened as the plain core, and told about."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.crash_handlers import abrt as abrt_reader
from dmods.corefile.crash_handlers import apport as apport_reader
from dmods.corefile.crash_handlers import systemd as systemd_reader
from dmods.corefile.crash_handlers.common import Context
from dmods.corefile.target import CoreFile
from fixtures import answers, keeping
from fixtures.cores import CoreSet, take
from fixtures.packing import FORMS
from tests.quick import only

HOSTILE = "\x1b]0;owned\x07\x1b[31m"
APPORT = {
    "ExecutablePath": "/usr/bin/redis-server",
    "ProcCmdline": "redis-server *:6379",
    "ProcStatus": "Name:\tredis\nPid:\t1604\nThreads:\t4",
    "ProcMaps": keeping.MAPS.strip("\n"),
    "Signal": "6",
    "Package": "redis-server 5:7.0.15-1",
}
ABRT = {
    "executable": "/usr/bin/redis-server",
    "type": "CCpp",
    "pid": "1605",
    "time": "1700000100",
    "reason": "redis-server killed by SIGSEGV",
    "cmdline": "redis-server *:6379",
    "package": "redis-7.0.15-1.fc40",
    "limits": keeping.LIMITS,
    "open_fds": keeping.OPEN_FDS,
    "maps": keeping.MAPS,
    "cgroup": "0::/system.slice/docker-" + "ab" * 32 + ".scope\n",
}
JOURNAL = {
    "PID": "1603",
    "TIMESTAMP": str(1_700_000_000 * 1_000_000),
    "SIGNAL": "11",
    "UNIT": "redis.service",
    "TRUNCATED": "1",
    "CGROUP": "/system.slice/redis.service",
    "CMDLINE": "redis-server *:6379" + HOSTILE,
    "PROC_LIMITS": keeping.LIMITS,
    "OPEN_FDS": list(keeping.OPEN_FDS.encode()),
    "CONTAINER_CMDLINE": "/usr/bin/containerd-shim",
    "PACKAGE_NAME": "redis",
    "PACKAGE_VERSION": "7.0.15-1",
    "PROC_MAPS": None,
}


@pytest.fixture(scope="module")
def small() -> CoreSet:
    return take("corrupt", mode="overrun")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root below which cores are looked for. There is no journal."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DMODS_CORES_ROOT", str(tmp_path / "root"))
    silent = keeping.journal(tmp_path / "silent", [])
    monkeypatch.setenv("PATH", f"{silent}:{os.environ['PATH']}")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def asked(name: str, *words: object, **options: Any) -> dict[str, Any]:
    done = answers.dmods(name, *words, "--json", **options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(answer: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return next((each["rows"] for each in answer["tables"] if each["name"] == table), [])


def kept(path: Path) -> dict[str, Any]:
    return rows(asked("panicinfo", path), "kept")[0]


def in_all(small: CoreSet, root: Path) -> dict[str, Path]:
    return {
        "coredump:1603": keeping.systemd(small.core, root),
        "coredump:1604": keeping.apport(small.core, root / "var/crash/_usr_bin_redis-server.1000.crash", APPORT),
        "coredump:1605": keeping.abrt(small.core, root / "var/spool/abrt/ccpp-1", ABRT),
    }


def test_the_same_answers_in_every_keeping(small: CoreSet, root: Path, tmp_path: Path) -> None:
    paths = in_all(small, root)
    empty = tmp_path / "empty"
    empty.mkdir()
    plain = answers.printed("findleaks", small.core)
    inside = answers.text(CoreFile(str(small.core)), "findleaks")
    for word, path in paths.items():
        done = answers.dmods("findleaks", word)
        assert done.stdout == plain, done.stderr
        assert f"note: {word} is {path}" in done.stderr
        assert answers.text(CoreFile(str(path)), "findleaks") == inside
    by_name = answers.dmods("maps", "coredump:redis.server")
    assert f"is {paths['coredump:1603']}" in by_name.stderr
    nobody = answers.dmods("maps", "coredump:nobody", cwd=empty)
    assert nobody.returncode == 1
    assert "no core of nobody" in nobody.stderr


def test_the_list(small: CoreSet, root: Path, tmp_path: Path) -> None:
    paths = in_all(small, root)
    here = tmp_path / "here"
    here.mkdir()
    (here / "core.zst").write_bytes(FORMS["zstd"](small.core.read_bytes()))
    (here / "notes.txt").write_text("no core")
    cut = here / "core.cut"
    cut.write_bytes(small.core.read_bytes()[:-8192])
    env = {**os.environ, "PYTHONPATH": str(answers.ROOT)}
    listed = {row["file"]: row for row in rows(asked("cores", cwd=here, env=env), "cores")}
    assert set(listed) == {str(path) for path in paths.values()} | {"core.zst", "core.cut"}
    systemd, apport, abrt = (listed[str(path)] for path in paths.values())
    assert (systemd["program"], systemd["pid"], systemd["signal"]) == ("/usr/bin/redis.server", 1603, "SIGSEGV")
    assert (systemd["seconds"], systemd["whole"]) == (1_700_000_000, None)
    assert (apport["pid"], apport["signal"], apport["keeper"]) == (1604, "SIGABRT", "apport")
    assert (abrt["pid"], abrt["signal"], abrt["whole"]) == (1605, "SIGSEGV", True)
    assert listed["core.cut"]["whole"] is False
    assert listed["core.zst"]["pid"] == listed["core.cut"]["pid"] == small.pid
    assert [row["seconds"] for row in listed.values()] == sorted((r["seconds"] for r in listed.values()), reverse=True)


def test_what_systemd_knows(small: CoreSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = keeping.systemd(small.core, root)
    alone = kept(path)
    assert (alone["kept_by"], alone["signal"], alone["hostname"]) == ("systemd-coredump", "SIGSEGV", "web-3")
    assert "unit" not in alone
    folder = keeping.journal(tmp_path / "journal", [{**JOURNAL, "FILENAME": str(path)}])
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    told = kept(path)
    assert (told["unit"], told["package"]) == ("redis.service", "redis 7.0.15-1")
    assert told["container"] == "/usr/bin/containerd-shim"
    assert told["limits"] == "core 1,048,576, open files 8"
    assert told["open_files"] == "8 of 8, the highest is 7"
    assert "COREDUMP_PID=1603" in (folder / "asked").read_text()
    for name in ("panicinfo", "doctor", "triage"):
        done = answers.dmods(name, path)
        assert "redis.service" in done.stdout
        assert "\x1b" not in done.stdout + done.stderr
    assert "8 open files at its death" in answers.dmods("triage", path).stdout
    assert rows(asked("cores"), "cores")[0]["whole"] is False


def test_a_journal_that_is_no_journal(
    small: CoreSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keeping.systemd(small.core, root)
    folder = keeping.journal(tmp_path / "journal", [])
    deep = "[" * 900 + "]" * 900
    odd = (
        f'{{"COREDUMP_UNIT": {deep}, "COREDUMP_SLICE": ["one", "two"]}}\n'
        + 'nonsense\n[1]\n{"COREDUMP_UNIT": {"a": 1}, "COREDUMP_CGROUP": [[]]}\n'
    )
    (folder / "entries.json").write_text(odd + "[" * 9999)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    told = kept(path)
    assert (told["signal"], told["slice"]) == ("SIGSEGV", "one")
    assert "unit" not in told


def test_what_apport_and_abrt_know(small: CoreSet, root: Path) -> None:
    paths = in_all(small, root)
    apport, abrt = kept(paths["coredump:1604"]), kept(paths["coredump:1605"])
    assert (apport["package"], apport["cmdline"]) == (APPORT["Package"], APPORT["ProcCmdline"])
    assert (abrt["container"], abrt["open_files"]) == ("ab" * 32, "8 of 8, the highest is 7")
    assert apport["mappings"] == abrt["mappings"] == "2 at the crash"
    assert kept(paths["coredump:1605"] / "coredump") == abrt


@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_the_core_of_a_report(step: int, small: CoreSet, tmp_path: Path) -> None:
    path = keeping.apport(small.core, tmp_path / "x.crash", {**APPORT, "ProcMaps": "a" * (3 << 20) + "\nb"}, step)
    assert keeping.unpacked_report(path) == small.core.read_bytes()
    told = apport_reader.fields(str(path))
    assert told["ProcStatus"].splitlines() == APPORT["ProcStatus"].splitlines()
    assert (told["Signal"], told["ZLast"]) == ("6", "the end")
    assert len(told["ProcMaps"]) <= 2 << 20
    packed = tmp_path / "packed"
    with packed.open("wb") as out:
        assert apport_reader.write_core(str(path), out, 1 << 40)
    assert gzip.decompress(packed.read_bytes()) == small.core.read_bytes()


def test_cut_and_damaged_reports(small: CoreSet, tmp_path: Path) -> None:
    whole = keeping.apport(small.core, tmp_path / "x.crash", APPORT, 4096).read_bytes()
    begin = whole.index(b"CoreDump: base64")
    for number, text in enumerate([whole[: (begin + len(whole)) // 2], whole[:-5000] + b"\n !!!\n"]):
        path = tmp_path / f"{number}.crash"
        path.write_bytes(text)
        done = answers.dmods("maps", path)
        assert "cut or damaged" in done.stderr, done.stderr
    for number, text in enumerate([whole[:begin], whole[:begin] + b"CoreDump: base64\n AAAA\n"]):
        path = tmp_path / f"none-{number}.crash"
        path.write_bytes(text)
        done = answers.dmods("maps", path)
        assert done.returncode == 1
        assert ("without a core", "cannot be unpacked")[number] in done.stderr


IN_DEBUGGERS = {
    "gdb": ("gdb", "coredump:1605", "-batch", "-ex", "findleaks", "-ex", "panicinfo"),
    "drgn": ("drgn", "-q", "-c", "coredump:1604", "findleaks"),
}


@pytest.mark.parametrize("word", only(["gdb"], IN_DEBUGGERS))
def test_in_a_debugger(word: str, small: CoreSet, root: Path) -> None:
    in_all(small, root)
    done = answers.dmods(*IN_DEBUGGERS[word])
    last = answers.printed("findleaks", small.core).strip().splitlines()[-1]
    assert last in done.stdout, done.stderr
    assert ("open files: 8 of 8" in done.stdout) == (word == "gdb")


def test_names_are_unescaped() -> None:
    name = f"core.a\\x2eb\\x2f\\x1b.1000.{keeping.BOOT}.7.1700000000000000.lz4"
    told = systemd_reader.told_by_name(f"/x/{name}")
    assert told is not None
    assert (told["comm"], told["pid"]) == ("a.b/\x1b", "7")
    assert systemd_reader.told_by_name("core.1603") is None


def test_hostile_items(tmp_path: Path) -> None:
    folder = keeping.abrt(
        Path("/dev/null"), tmp_path / "p", {"type": "CCpp", "pid": "9" * 5000, "reason": "killed by SIGX"}
    )
    os.symlink("/etc/passwd", folder / "cmdline")
    os.mkfifo(folder / "maps")
    (folder / "cgroup").write_bytes(b"\xff" * (3 << 20))
    found = abrt_reader.context(str(folder))
    assert isinstance(found, Context)
    assert found.number("pid") is None
    assert {"cmdline", "maps", "signal"}.isdisjoint(found.known)
    assert len(found.known["cgroup"]) <= 4 << 20
