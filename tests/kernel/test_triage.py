"""Triage of guests: what was planted, by the guest's own word, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dmods.triage.answer import PASSED, Triage
from dmods.triage.runner import discover
from drgnext.kernel.dump.target import Kernel
from drgnext.triage import identity
from drgnext.triage.kernel import CHECKS, triage_kernel
from fixtures import kernel
from fixtures.kernel import busy
from tests.kernel.crashed import open_program

RELEASES = ("6.1", "5.10", "6.12", "sid")


@pytest.mark.thorough("it opens a guest")
def test_a_panic_is_the_first_finding() -> None:
    found = triage_kernel(Kernel(open_program(kernel.guest("6.1", crash="null"))))
    assert [each.kind for each in found.findings] == ["null-pointer"]
    assert "guest_crash_null" in found.findings[0].what
    assert found.memory is not None
    assert sum(found.memory.percents()) == 100


@pytest.mark.thorough("it opens a guest")
@pytest.mark.parametrize("release", RELEASES)
def test_a_healthy_guest_has_no_finding(release: str) -> None:
    target = Kernel(open_program(kernel.guest(release, crash="sysrq")))
    found = triage_kernel(target)
    assert found.findings == []
    assert found.unknown == []
    assert found.checks == [check.name for check in discover(CHECKS)]
    assert [each.check for each in found.results if each.state != PASSED or not each.value] == []
    _is_this_machine(found, target)


def _is_this_machine(found: Triage, target: Kernel) -> None:
    """Compare the identity with what drgn reads of the same structures."""
    shown = {line.name: line.text for line in (*found.identity, *found.trust)}
    name = target.prog["init_uts_ns"].name
    assert shown["system"].startswith(name.release.string_().decode())
    assert shown["machine"].startswith("x86_64, 2 CPUs, ")
    assert "dmods.scale=1" in shown["arguments"]
    assert shown["uptime"].endswith("s")
    assert shown["memory"] == "the dump is whole"
    assert "has the build-id of the dump" in shown["debug information"]


def test_a_report_says_once_where_debug_information_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vmlinux, no part of the report says that it is here."""
    carried = "there is no vmlinux: symbols and types are those that the kernel carries (kallsyms, BTF)"
    prog = SimpleNamespace(main_module=lambda: SimpleNamespace(build_id=b"\x12"), modules=list)
    monkeypatch.setattr(identity, "carried_note", lambda _prog: [carried])
    monkeypatch.setattr(identity, "read_vmcoreinfo", lambda _prog: {"BUILD-ID": "12"})
    filtered = "the dump was filtered (makedumpfile -d 31): without user data"
    facts: Any = SimpleNamespace(
        kernel=SimpleNamespace(path="vmcore", notes=[filtered, "2 modules have no types"], prog=prog),
        threads=SimpleNamespace(notes=[]),
        reader=SimpleNamespace(notes=[]),
    )
    said = {line.name: line.text for line in identity.kernel_trust(facts)}
    assert (said["memory"], said["debug information"]) == (filtered, carried)
    monkeypatch.setattr(identity, "carried_note", lambda _prog: [])
    said = {line.name: line.text for line in identity.kernel_trust(facts)}
    assert said["debug information"] == "vmlinux is here, and has the build-id of the dump"


@pytest.mark.thorough("it needs a busy guest")
@pytest.mark.parametrize("release", RELEASES)
def test_planted_conditions_and_nothing_else(release: str) -> None:
    import drgn

    guest = busy.guest(release)
    prog = drgn.Program()
    prog.set_core_dump(str(guest.vmcore))
    prog.load_debug_info([str(path) for path in (guest.kernel.vmlinux, *guest.modules)])
    found = triage_kernel(Kernel(prog))
    by_kind: dict[str, list[Any]] = {}
    for each in found.findings:
        by_kind.setdefault(each.kind, []).append(each)
    assert by_kind.keys() == {"deadlock", "lock-held", "close-wait", "stuck-disk"}
    pid = {name[4:]: value for name, value in guest.truth.items() if name.startswith("pid_")}

    (deadlock,) = by_kind["deadlock"]
    assert all(f"({pid[name]})" in deadlock.what for name in ("deadlock_one", "deadlock_two"))

    locks = {each.evidence[0].address: each for each in by_kind["lock-held"]}
    assert locks.keys() == {guest.truth["rwsem"], guest.truth["read"]}
    assert f"hold_rwsem ({pid['hold_rwsem']})" in locks[guest.truth["rwsem"]].what

    (socket,) = by_kind["close-wait"]
    assert f"server ({pid['server']}) has 1 connection" in socket.what
    assert f"fd {guest.truth['fd_close_wait']} of {pid['server']}" in socket.evidence[0].what

    (disk,) = by_kind["stuck-disk"]
    assert "1 request in flight, the oldest (read of 65,536 bytes" in disk.what
