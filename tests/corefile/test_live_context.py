"""A live process has what /proc says of it in the places where a dead one has what the keeper of its core says."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.context import context_lines
from dmods.corefile.live.context import live_context
from fixtures import answers
from tests.livekit import running, wait_for

ID = "ab" * 32
_SLEEPS = ("35", "230")  # nanosleep() and clock_nanosleep(), on x86-64


def rows(answer: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return next((each["rows"] for each in answer["tables"] if each["name"] == table), [])


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits, with 40 open files and more."""
    others = [os.open(os.devnull, os.O_RDONLY) for _count in range(40)]
    with subprocess.Popen(["sleep", "600"], pass_fds=others) as process:
        for each in others:
            os.close(each)
        # Before that it has files of its own open for a moment: its libraries, its locale.
        wait_for(lambda: Path(f"/proc/{process.pid}/syscall").read_text().split()[0] in _SLEEPS)
        yield process
        process.kill()


def test_limits_and_open_files_in_all_places(server: subprocess.Popen[bytes]) -> None:
    numbers = [int(name) for name in os.listdir(f"/proc/{server.pid}/fd")]
    count, highest = len(numbers), max(numbers)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (count, count))
    kept = rows(answers.typed("panicinfo", "-p", server.pid), "kept")[0]
    assert kept["told_by"] == f"/proc/{server.pid}"
    assert kept["open_files"] == f"{count} of {count}, the highest is {highest}"
    assert f"open files {count}" in kept["limits"]
    assert kept["cmdline"] == "sleep 600"
    assert "not_read" not in kept
    triage = answers.typed("triage", "-p", server.pid)
    identity = {row["name"]: row["text"] for row in rows(triage, "identity")}
    assert identity["open files"] == kept["open_files"]
    full = next(row for row in rows(triage, "findings") if row["kind"] == "limit")
    assert f"the process has {count} open files, and may have {count} (RLIMIT_NOFILE)" in full["what"]
    for words in (("doctor", server.pid), ("doctor", "-p", server.pid)):
        said = {row["what"]: row["found"] for row in rows(answers.typed(*words), "doctor")}
        assert said["open files"] == kept["open_files"]
        assert said["cmdline"] == kept["cmdline"]


def test_what_may_not_be_read_is_one_line(program: Path) -> None:
    """A user without rights sees the limits and the command line of another user's process, and not its open files."""
    with running(program) as server:
        root = os.getuid() == 0
        code = f"""if True:
            import os, resource
            from dmods.corefile.context import context_lines
            from dmods.corefile.live.context import live_context
            {"os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3)" if root else ""}
            print(*dict(context_lines(live_context({server.pid if root else 1}))).items(), sep="\\n")
        """
        done = answers.finished(sys.executable, "-c", code, cwd=answers.ROOT)
    assert not done.stderr, done.stderr
    assert "('not_read', 'open files, current folder, root, program: no permission')" in done.stdout.splitlines()
    assert "('limits'," in done.stdout
    assert "('cmdline'," in done.stdout


GROUPS = {
    "0::/system.slice/redis.service\n": {"unit": "redis.service", "slice": "system.slice"},
    "0::/user.slice/user-7.slice/user@7.service/app.slice/sh.scope/own\n": {
        "unit": "user@7.service", "user_unit": "sh.scope", "slice": "user-7.slice",
    },
    f"9:name=systemd:/docker/{ID}\n0::/\n": {"cgroup": f"/docker/{ID}", "container": ID},
    f"0::/system.slice/docker-{ID}.scope\n": {"unit": f"docker-{ID}.scope", "slice": "system.slice", "container": ID},
    "4:memory:/jobs/7\n0::/\nnonsense\n": {"cgroup": "/jobs/7"},
    "0::/\n": {"cgroup": "/"},
}  # fmt: skip


@pytest.mark.parametrize("text", GROUPS)
def test_units_and_containers(text: str, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(text)
    found = live_context(7, str(tmp_path))
    told = dict(context_lines(found))
    named = {name: told[name] for name in ("unit", "user_unit", "slice", "container") if name in told}
    assert {"cgroup": told["cgroup"], **named} == {"cgroup": told["cgroup"], **GROUPS[text]}


def test_names_of_files_cannot_add_lines(tmp_path: Path) -> None:
    (tmp_path / "7/fd").mkdir(parents=True)
    os.symlink("/tmp/x\n99:/etc/shadow\x1b[31m", tmp_path / "7/fd/3")
    os.symlink(b"/tmp/\xff", os.fsencode(tmp_path) + b"/7/fd/4")
    (tmp_path / "7/cmdline").write_bytes(b"a b\0\xff\0\0")
    found = live_context(7, str(tmp_path))
    assert set(found.open_files) == {3, 4}
    assert found.open_files[4] == "/tmp/\\xff"
    assert found.known["cmdline"] == "'a b' '\\xff'"


def test_a_process_that_has_ended() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert live_context(process.pid).known == {"pid": str(process.pid)}
