"""A live process that may not be stopped: one line says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.live.picture import open_process
from dmods.corefile.live.process import Status, refusal
from dmods.errors import UserError
from fixtures import answers
from tests.livekit import running, states, status, wait_for

NOBODY = 65534


def _is_kthreadd(pid: int) -> bool:
    """Return whether the process is the kernel's own, from which all its threads come. Anybody may read its name."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "kthreadd\n"
    except OSError:
        return False


def refused(pid: int, *, user: bool = False) -> str:
    """Return what a picture of the process is refused with. With ``user``, a user without rights asks for it."""
    # That user may not read the checkout: a picture that is taken first has imported all that is needed.
    drop = f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)" if user else ""
    code = f"""if True:
        import os, subprocess
        from dmods.corefile.live.picture import open_process
        from dmods.errors import UserError
        def refusal(pid):
            try:
                open_process(pid)
            except UserError as error:
                return error.what + "\\n" + error.how
        with subprocess.Popen(["sleep", "600"]) as other:
            open_process(other.pid)
            refusal(os.getpid())
            other.kill()
        {drop}
        print(refusal({pid}))
    """
    done = answers.finished(sys.executable, "-c", code, cwd=answers.ROOT)
    assert not done.stderr, done.stderr
    assert done.stdout.count("\n") == 2, done.stdout
    return done.stdout


def test_another_users_process_is_refused(program: Path) -> None:
    with running(program) as server:
        root = os.getuid() == 0
        pid, owner = (server.pid, 0) if root else (1, 0)
        said = refused(pid, user=root)
        assert f"it belongs to user {owner}, and CAP_SYS_PTRACE is missing" in said
        assert f"sudo dmods NAME -p {pid}" in said


def test_what_is_missing_is_named(program: Path) -> None:
    with running(program) as server:
        debugger = subprocess.Popen(
            ["gdb", "-nx", "-q", "-p", str(server.pid)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: status(server.pid)["TracerPid"] == str(debugger.pid))
        assert f"has a tracer already: process {debugger.pid} (gdb)" in refused(server.pid)
        debugger.kill()
        debugger.wait()
    with pytest.raises(UserError, match="is this dmods itself"):
        open_process(os.getpid())
    ended = subprocess.Popen(["true"])
    wait_for(lambda: states(ended.pid) == ["Z"])
    assert "is a zombie" in refused(ended.pid)
    ended.wait()
    assert f"there is no process {ended.pid}" in refused(ended.pid)


def machine(proc: Path, scope: str, capabilities: int, seccomp: int = 0, label: str = "") -> Path:
    """Make the files of a /proc of a machine with such rights."""
    for name, text in {
        "sys/kernel/yama/ptrace_scope": scope,
        "self/status": f"CapEff:\t{capabilities:016x}\nSeccomp:\t{seccomp}\n",
        "self/attr/current": label,
        "77/status": "",
    }.items():
        path = proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc


@pytest.mark.parametrize(
    ("rights", "says"),
    [
        (("1", 0), "kernel.yama.ptrace_scope=1 allows it to parents only, and CAP_SYS_PTRACE is missing"),
        (("3", 1 << 19), "kernel.yama.ptrace_scope=3 forbids it to everybody until the next boot"),
        (("0", 1 << 19, 2), "in spite of CAP_SYS_PTRACE: the seccomp filter of this container forbids it"),
        (("0", 0, 2), "the seccomp filter of this container forbids it, and CAP_SYS_PTRACE is missing"),
        (("0", 0, 0, "docker-default (enforce)\n"), "AppArmor (docker-default (enforce)) forbids it"),
    ],
)
def test_rights_that_are_missing(tmp_path: Path, rights: Any, says: str) -> None:
    proc = machine(tmp_path, *rights)
    error = refusal(77, Status("server", "S", 0, (os.getuid(),) * 4, 0), str(proc))
    assert says in error.what
    assert error.what.startswith("no permission to stop process 77 (server)")
    assert "sudo" in error.how or "ptrace_scope" in error.how or "--cap-add=SYS_PTRACE" in error.how


@pytest.mark.skipif(not _is_kthreadd(2), reason="a PID namespace of its own has no thread of the kernel")
def test_a_thread_of_the_kernel_has_no_memory() -> None:
    assert "is a thread of the kernel" in refused(2)
