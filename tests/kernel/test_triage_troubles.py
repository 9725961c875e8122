"""Triage of guests in trouble: each planted fault is found with its owner and numbers, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Optional

import pytest

from dmods.base.sizes import human_size
from dmods.command import KERNEL
from dmods.finding import Finding
from drgnext.kernel.dump.target import Kernel
from drgnext.triage.checks import memory
from drgnext.triage.kernel import triage_kernel
from fixtures import answers
from fixtures.kernel import trouble
from fixtures.kernel.said import Said

pytestmark = pytest.mark.thorough("it needs guests in trouble")

OTHERS = pytest.mark.seldom("it needs four guests of another kernel")
QUEUES = ("6.1", *(pytest.param(name, marks=OTHERS) for name in ("6.12", "sid")))
RELEASES = (*QUEUES, pytest.param("5.10", marks=OTHERS))
# In 5.10 the scheduler takes 256 requests, whatever the disk takes. So no task waits for a place.
WITHOUT_QUEUE = tuple(part for part in trouble.MANY if part != "queue")
each_release = pytest.mark.parametrize("release", RELEASES)


def many(release: str) -> Sequence[str]:
    """Return the parts of a kernel's guest with many faults."""
    return WITHOUT_QUEUE if release == "5.10" else trouble.MANY


def grows(release: str) -> bool:
    """Return whether its NFS server gives a session more slots as they are used (since 6.14, fs/nfsd/nfs4state.c)."""
    return release == "sid"


@cache
def opened(release: str, parts: Optional[Sequence[str]] = None) -> Kernel:
    import drgn

    guest = trouble.guest(release, parts or many(release))
    prog = drgn.Program()
    prog.set_core_dump(str(guest.vmcore))
    # dm_mod and sch_netem have no debug information here.
    prog.load_debug_info([str(path) for path in (guest.kernel.vmlinux, *guest.modules)])
    return Kernel(prog)


@cache
def found(release: str, parts: Optional[Sequence[str]] = None) -> dict[str, list[Finding]]:
    """Return the findings by their kinds."""
    by_kind: dict[str, list[Finding]] = {}
    triage = triage_kernel(opened(release, parts))
    for each in triage.findings:
        by_kind.setdefault(each.kind, []).append(each)
    assert [one.why for one in triage.unknown if "no debugging information" not in one.why] == []
    return by_kind


def number(text: str, pattern: str) -> int:
    """Return the number with commas that the pattern's group finds."""
    match = re.search(pattern, text)
    assert match is not None, f"{pattern!r} is not in {text!r}"
    return int(match.group(1).replace(",", ""))


def meminfo(text: str, name: str) -> int:
    """Return a line of a meminfo file in bytes."""
    return number(text, rf"\b{name}:\s*(\d+) kB") << 10


def disk(guest: Said, sectors: int) -> str:
    """Return the name of the disk of that size."""
    return next(
        path.split("/")[3]
        for path, text in guest.said.items()
        if re.fullmatch(r"/sys/block/vd./size", path) and int(text) == sectors
    )


@each_release
def test_the_planted_faults_and_nothing_else(release: str) -> None:
    kinds = {kind: len(each) for kind, each in found(release).items()}
    # A full send buffer is a state of the moment: at the crash it may be half empty.
    windows = len([each for each in found(release)["window-small"] if each.subject != "send-buffer"])
    kinds["window-small"] = windows
    # On a slow machine the guest lives so long that tasks which wait for the dead NFS server count as hung.
    for each in found(release).get("hung-task", []):
        assert "nfs" in f"{each.what} {each.evidence}" or "rpc" in each.what, each
        kinds.pop("hung-task", None)
    text = trouble.guest(release, many(release)).said["/proc/meminfo"]
    # What was lost is about a quarter of the machine, which is the limit.
    share = meminfo(text, "SUnreclaim") / meminfo(text, "MemTotal")
    slab = {"slab-unreclaimable": 1} if share >= 0.25 else {}
    queue = {"queue-full": 1} if "queue" in many(release) else {}
    assert kinds == {
        "memcg-full": 1, "oom-kill": 1, "swap-full": 1, "kernel-leak": 1,
        "negative-dentries": 1, "misaligned": 4, "one-cpu-receives": 1, "window-small": 1,
        "nfs-no-answer": 1, "nfs-slots": 1 if grows(release) else 2, **queue, **slab,
    }  # fmt: skip


def test_what_is_proposed_can_be_typed() -> None:
    target = opened("6.1")
    proposed = {words for each in found("6.1").values() for one in each for words in one.next}
    assert proposed
    for words in sorted(proposed):
        name, *arguments = words.split()
        assert answers.report(target, name, *arguments, side=KERNEL).tables, words


@each_release
def test_a_control_group_that_is_full(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (full,) = found(release)["memcg-full"]
    current = int(guest.said["/sys/fs/cgroup/tight/memory.current"])
    assert f"/tight uses {human_size(current)} of its limit of {human_size(32 << 20)}" in full.what
    assert "with 1 process" in full.what
    # The other one is nearly as full (7.2 drops more at once), with pages of files.
    cached = int(guest.said["/sys/fs/cgroup/cached/memory.current"])
    assert cached > 0.85 * int(guest.said["/sys/fs/cgroup/cached/memory.max"])


@each_release
def test_a_task_that_was_killed(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (killed,) = found(release)["oom-kill"]
    assert number(killed.what, r"ended ([\d,]+) task") == number(guest.said["/proc/vmstat"], r"oom_kill (\d+)")
    assert number(guest.said["/sys/fs/cgroup/killed/memory.events.local"], r"oom_kill (\d+)") == 1
    assert "for the limit of the memory cgroup /killed;" in killed.what


@each_release
def test_swap_that_is_full(release: str) -> None:
    text = trouble.guest(release, many(release)).said["/proc/meminfo"]
    (full,) = found(release)["swap-full"]
    assert full.weight == meminfo(text, "SwapTotal") - meminfo(text, "SwapFree")


@each_release
def test_slabs_that_were_lost(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (leak,) = found(release)["kernel-leak"]
    lost = guest.truth["lost"]
    # A stack or a CPU's list may still have the last of them.
    assert lost - 8 <= number(leak.what, r"([\d,]+) of dmods_lost") <= lost
    for slab in found(release).get("slab-unreclaimable", []):
        assert slab.weight == pytest.approx(meminfo(guest.said["/proc/meminfo"], "SUnreclaim"), rel=0.02)


@each_release
def test_names_of_missing_files(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (names,) = found(release)["negative-dentries"]
    state = guest.said["/proc/sys/fs/dentry-state"].split()
    assert names.weight == pytest.approx(int(state[4]), rel=0.001)
    assert names.weight >= guest.truth["names"]


@each_release
def test_what_lies_across_blocks(release: str) -> None:
    guest = trouble.guest(release, many(release))
    parts = disk(guest, 384 * 2048)
    into = {
        each.subject: number(each.what, r"([\d,]+) bytes into a block of 4,096")
        for each in found(release)["misaligned"]
    }
    assert into.keys() == {f"{parts}1", f"{parts}3", "loop0", "dm-0"}
    for name in (f"{parts}1", f"{parts}3"):
        offset = int(guest.said[f"/sys/block/{parts}/{name}/alignment_offset"])
        assert into[name] == 4096 - offset
        start = int(guest.said[f"/sys/block/{parts}/{name}/start"])
        (remedy,) = (each.remedy for each in found(release)["misaligned"] if each.subject == name)
        assert f"sector {start + offset // 512}" in remedy
    assert into["dm-0"] == 4096 - int(guest.said["/sys/block/dm-0/alignment_offset"])
    assert into["loop0"] == int(guest.said["/sys/block/loop0/loop/offset"]) % 4096
    # Cylinders of 255 * 63 sectors, and blocks of 8: lcm(16065, 8) / 16065.
    (third,) = (each for each in found(release)["misaligned"] if each.subject == f"{parts}3")
    assert "only every 8th cylinder is aligned" in third.remedy
    listed = {
        row["name"]: row for row in answers.by_name(answers.answer(opened(release), "disks", side=KERNEL))["disks"]
    }
    assert listed[f"{parts}2"]["off"] == int(guest.said[f"/sys/block/{parts}/{parts}2/alignment_offset"]) == 0
    assert listed["dm-0"]["on"] == f"{parts}2"


@pytest.mark.parametrize("release", QUEUES)
def test_a_queue_that_is_full(release: str) -> None:
    guest = trouble.guest(release, many(release))
    narrow = disk(guest, 16 * 2048)
    (full,) = found(release)["queue-full"]
    depth = int(guest.said[f"/sys/block/{narrow}/inflight"].split()[0])
    assert f"{narrow} has all the {depth} requests that it takes ({depth} raw)" in full.what
    readers = guest.pids("reader")
    waiting = sum("blk_mq_get_tag" in guest.said[f"/proc/{pid}/stack"] for pid in readers)
    # Some got a place between the word and the crash, and others lost theirs.
    assert number(full.what, r"(\d+) tasks wait") == pytest.approx(waiting, abs=3)
    assert full.weight == pytest.approx(len(readers) - depth, abs=1)
    assert number(full.evidence[1].what, r"reader \((\d+)\) waits") in readers
    (row,) = answers.by_name(answers.answer(opened(release), "disks", narrow, side=KERNEL))["queues"]
    assert row["requests"] == int(guest.said[f"/sys/block/{narrow}/queue/nr_requests"])


@each_release
def test_packets_on_one_cpu(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (one,) = found(release)["one-cpu-receives"]
    lines = [[int(word, 16) for word in line.split()] for line in guest.said["/proc/net/softnet_stat"].splitlines()]
    assert f"CPU 0 of {len(lines)} received" in one.what
    # Packets still come until the crash.
    assert number(one.what, r"received ([\d,]+) of") == pytest.approx(lines[0][0], rel=0.05)
    assert number(one.what, r"ran out of time ([\d,]+) times") == pytest.approx(lines[0][2], rel=0.05)


@each_release
def test_windows_that_are_small(release: str) -> None:
    guest = trouble.guest(release, many(release))
    small = {each.subject: each for each in found(release)["window-small"]}
    names = {"peer-window": "small_reader", "send-buffer": "small_writer"}
    assert {"peer-window"} <= small.keys() <= names.keys()
    for kind, each in small.items():
        name = names[kind]
        (pid,) = guest.pids(name)
        assert each.what.startswith(f"{name} ({pid}) is limited")
        trip = re.search(r"round trip of ([\d.]+) ms", each.what)
        assert trip is not None
        assert float(trip.group(1)) == pytest.approx(guest.truth[f"min_rtt_{name}"] / 1000, rel=0.2)
    share = 100 * guest.truth["rwnd_small_reader"] / guest.truth["busy_small_reader"]
    assert number(small["peer-window"].what, r"(\d+) % of the time") == pytest.approx(share, abs=5)


@each_release
def test_a_cpu_that_is_stuck_and_a_node_without_memory(release: str) -> None:
    parts = trouble.STUCK
    guest = trouble.guest(release, parts)
    by_kind = found(release, parts)
    assert {kind: len(each) for kind, each in by_kind.items()} == {"cpu-stuck": 1, "numa-imbalance": 1}
    (spinner,) = guest.pids("spinner")
    assert re.search(rf"soft lockup - CPU#1 stuck for \d+s! \[spinner:{spinner}\]", guest.said["log"])
    assert by_kind["cpu-stuck"][0].what.startswith(f"CPU 1 runs spinner ({spinner})")
    texts = [guest.said[f"/sys/devices/system/node/node{node}/meminfo"] for node in (0, 1)]
    left = [meminfo(text, "MemFree") + meminfo(text, "FilePages") for text in texts]
    assert by_kind["numa-imbalance"][0].what.startswith("node 1 has ")
    assert by_kind["numa-imbalance"][0].weight == pytest.approx(left[0] - left[1], rel=0.1)


@each_release
def test_free_memory_in_single_pages(release: str) -> None:
    parts = ("scatter",)
    guest = trouble.guest(release, parts)
    by_kind = found(release, parts)
    assert {kind: len(each) for kind, each in by_kind.items()} == {"fragmented": 1}
    zones = [[int(word) for word in line.split()[4:]] for line in guest.said["/proc/buddyinfo"].splitlines()]
    free = sum(count << order for zone in zones for order, count in enumerate(zone)) * 4096
    large = sum(count << order for zone in zones for order, count in enumerate(zone) if order >= 3) * 4096
    assert large < 0.1 * free
    assert by_kind["fragmented"][0].weight == pytest.approx(free, rel=0.05)


@each_release
def test_memory_that_is_short(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ("short",)
    guest = trouble.guest(release, parts)
    by_kind = found(release, parts)
    total, available = _available(release, parts)
    # The kernel gives back the free pages of each CPU at any time, and only then counts them as free. In 7.2 these are
    # a thousand pages between the guest's word and the crash (pgalloc and pgfree say so). So the dump alone decides.
    # That it is right to the page is shown by test_meminfo_to_the_page (test_busy.py).
    short = {"memory-short": 1} if available < memory.AVAILABLE * total else {}
    assert {kind: len(each) for kind, each in by_kind.items()} == {"oom-kill": 1, "process-holds": 1, **short}
    (hog,) = guest.pids("hog")
    _holds_most(guest, hog, by_kind["process-holds"][0])
    (victim,) = guest.pids("victim")
    assert f"Killed process {victim} (victim)" in guest.said["log"]
    # Whatever this guest has left: the finding comes below the limit, and not above.
    for limit, count in ((available + 2048, 1), (available - 2048, 0)):
        monkeypatch.setattr(memory, "AVAILABLE", limit / total)
        triage = triage_kernel(opened(release, parts), "memory")
        findings = [each for each in triage.findings if each.kind == "memory-short"]
        assert len(findings) == count
        for each in findings:
            assert f"hog ({hog})" in each.what
            assert each.weight == total - available


@each_release
def test_ps_says_who_holds_the_memory(release: str) -> None:
    guest, tables = trouble.guest(release, ("short",)), _tables(release, ("short",), "ps")
    (hog,), (victim,) = guest.pids("hog"), guest.pids("victim")
    (kill,), holders = tables["oom_kills"], tables["holders"]
    assert (kill["invoker_pid"], kill["victim_pid"], kill["largest_pid"]) == (victim, victim, hog)
    assert (kill["victim"], kill["group"], kill["largest"]) == ("victim", "the machine", "hog")
    sizes = re.findall(r"(?:anon|file|shmem)-rss:(\d+)kB", guest.said["log"])
    assert kill["freed"] == sum(map(int, sizes)) << 10
    assert (holders[0]["pid"], holders[0]["group"], holders[0]["limit"]) == (hog, "/", None)


@each_release
def test_ps_says_whose_limit_was_hit(release: str) -> None:
    guest, tables = trouble.guest(release, many(release)), _tables(release, None, "ps")
    (kill,), holders = tables["oom_kills"], {row["pid"]: row for row in tables["holders"]}
    assert (kill["invoker"], kill["victim"], kill["group"]) == ("greedy", "greedy", "/killed")
    (tight,) = guest.pids("tight")
    row = holders[tight]
    assert (row["group"], row["limit_of"], row["limit"]) == ("/tight", "/tight", 32 << 20)


def _tables(release: str, parts: Optional[Sequence[str]], *words: str) -> dict[str, list[dict[str, Any]]]:
    return answers.by_name(answers.answer(opened(release, parts), *words, side=KERNEL))


def _available(release: str, parts: Sequence[str]) -> tuple[int, int]:
    """Return MemTotal and MemAvailable of the dump in bytes."""
    rows = answers.answer(opened(release, parts), "meminfo", side=KERNEL)["tables"][0]["rows"]
    values = {row["name"]: row["value"] << 10 for row in rows}
    return values["MemTotal"], values["MemAvailable"]


@each_release
def test_limits_that_are_used_up(release: str) -> None:
    parts = ("limits",)
    guest = trouble.guest(release, parts)
    by_kind = found(release, parts)
    assert by_kind.keys() == {"limit"}
    files, mappings = sorted(by_kind["limit"], key=lambda each: each.subject, reverse=True)
    (hoarder,), (mapper,) = guest.pids("hoarder"), guest.pids("mapper")
    held, most = guest.truth["open_files"], guest.truth["mappings"]
    assert files.what.startswith(f"hoarder ({hoarder}) has {held} of {held} open files")
    mapped = len(
        re.findall(r"^[0-9a-f]+-[0-9a-f]+ (?!.*\[vsyscall\])", guest.said[f"/proc/{mapper}/smaps"], re.MULTILINE)
    )
    assert mappings.what.startswith(f"mapper ({mapper}) has {mapped:,} of {most:,} mappings")
    (value,) = (each.value for each in triage_kernel(opened(release, parts), "limits").results)
    used, _free, limit = guest.said["/proc/sys/fs/file-nr"].split()
    assert number(value, r"of ([\d,]+) open files,") == int(limit)
    # The kernel counts files that are on their way out, and this was one of them.
    assert number(value, r"limit; ([\d,]+) of") == pytest.approx(int(used), abs=64)
    assert number(value, r"of ([\d,]+) tasks") == int(guest.said["/proc/sys/kernel/threads-max"])


def _holds_most(guest: Said, hog: int, found: Finding) -> None:
    """Compare the mappings of the largest process with /proc/PID/smaps."""
    rss = meminfo(guest.said[f"/proc/{hog}/status"], "VmRSS")
    assert found.what.startswith(f"hog ({hog}) has ")
    assert found.weight == pytest.approx(rss, rel=0.02)
    # "START-END FLAGS ...", and lines "Name: N kB"
    pieces = re.split(r"^([0-9a-f]+-[0-9a-f]+) .*$", guest.said[f"/proc/{hog}/smaps"], flags=re.MULTILINE)[1:]
    sizes = sorted((meminfo(text, "Rss") for text in pieces[1::2]), reverse=True)
    assert f"{human_size(sizes[0])} in anonymous memory" in found.what
    told = [each.what.partition(": ")[2].split(" of ")[0] for each in found.evidence]
    assert told == [human_size(size) for size in sizes[: len(told)]]
