"""Logs of the OOM killer: who has the memory, and what the limit is. The formats are those of 6.1 and 6.12."""

from __future__ import annotations

import pytest

from drgnext.kernel.crash.klog import PanicLog, read_panic_log
from drgnext.kernel.crash.oom import OomKill, oom_details, oom_kills
from drgnext.kernel.crash.records import Record
from drgnext.triage.deaths import kind_of

INVOKED = "sshd invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0, oom_score_adj=0"
HEADING = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
ROWS = (
    "[     91]     0    91     1031      402    45056        0             0 program",
    "[    142]     0   142    94086    36573   770048     3197             0 the hog",
    "[    811]     0   811     2094      611    57344        0         -1000 sshd",
)
NEWER_HEADING = (
    "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name"
)
NEWER_ROWS = (
    "[    142]     0   142    94086    36573    36000      573         0   770048     3197             0 the hog",
    "[    811]     0   811   902094      611      500      111         0    57344       12         -1000 sshd",
)
GROUP = (
    "memory: usage 20480kB, limit 20480kB, failcnt 46",
    "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
    "Memory cgroup stats for /jobs/hog:",
    "anon 20000000",
)
HOG = "the largest task is the hog, pid 142: 36573 pages and 3197 in swap"


def read(*lines: str) -> PanicLog:
    return read_panic_log([Record(6.5, line, 811) for line in lines])


@pytest.mark.parametrize("table", [(HEADING, *ROWS), (HEADING, *reversed(ROWS)), (NEWER_HEADING, *NEWER_ROWS)])
@pytest.mark.parametrize(
    "panic",
    ["Out of memory: system-wide panic_on_oom is enabled", "System is deadlocked on memory"],
)
def test_the_task_with_most_memory_is_named(table: tuple[str, ...], panic: str) -> None:
    found = read("eth0: link is up", INVOKED, "Mem-Info:", *table, f"Kernel panic - not syncing: {panic}")
    assert (found.message, found.panic, found.details) == (INVOKED, panic, (HOG,))
    assert kind_of(INVOKED) == "out-of-memory"


def test_the_group_and_its_limit_are_named() -> None:
    panic = "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled"
    limit = "memory cgroup /jobs/hog: usage 20480kB, limit 20480kB"
    assert read(INVOKED, *GROUP, HEADING, *ROWS, panic).details == (HOG, limit)
    kill = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/jobs/hog,task_memcg=/"
    )
    assert oom_details([INVOKED, GROUP[0], kill]) == (limit,)
    assert oom_details([INVOKED, GROUP[0]]) == ("memory cgroup (not named): usage 20480kB, limit 20480kB",)


MEMCG = (
    "greedy invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "CPU: 0 UID: 0 PID: 96 Comm: greedy Tainted: G           OE      6.12.117+deb13-cloud-amd64 #1",
    "Memory cgroup stats for /killed:",
    HEADING,
    "[     96]     0    96    10839     6218    94208        0             0 greedy",
    "Memory cgroup out of memory: Killed process 96 (greedy) total-vm:43356kB, anon-rss:24356kB, file-rss:0kB, "
    "shmem-rss:516kB, UID:0 pgtables:92kB oom_score_adj:0",
)


def test_calls_of_the_oom_killer() -> None:
    lines = ["eth0: link is up", *MEMCG, "eth0: link is down", INVOKED, HEADING, *ROWS, "Kernel panic - not syncing: x"]
    records = [Record(float(number), text, 811) for number, text in enumerate(lines)]
    first, second = oom_kills(records)
    assert first == OomKill(1.0, "greedy", 96, "greedy", 96, (24356 + 516) << 10, "/killed", "greedy", 96, 6218)
    assert second == OomKill(8.0, "sshd", None, largest="the hog", largest_pid=142, largest_pages=36573 + 3197)
    # A program wrote them.
    assert oom_kills([record._replace(facility=1) for record in records]) == []
    assert oom_kills(records[2:3]) == []


def test_what_is_no_table() -> None:
    assert oom_details([]) == ()
    assert oom_details([HEADING, *ROWS]) == ()
    assert oom_details([INVOKED, *ROWS]) == ()
    cut = [HEADING, "[ 1] 2 3", "[    5]", "[", f"[ 7]{' 9' * 5000} x", "[ 8] 0 8 x 1 1 1 1 name", HEADING[:40]]
    assert oom_details([INVOKED, *cut]) == ()
    assert oom_details([INVOKED, HEADING, f"[{'9' * 5000}]{' 1' * 7} x"]) == ()
