"""The commands workqueues and vmalloc, compared with what the kernel of a busy guest said of itself.

During its panic the guest queues works for a CPU that has stopped, and its own show_all_workqueues() (sysrq-t, "Showing
busy workqueues and worker pools:") writes the state of all workqueues to the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.memory import FEWER
from tests.kernel.test_busy import Case

pytestmark = pytest.mark.thorough("it needs a busy guest")
_SECOND = 1_000_000_000
_BEGIN = "Showing busy workqueues and worker pools:"
#: busy_guest/dmods_busy.c: what it queues.
PLANTED = {"busy_ordered", "busy_bound", "events_highpri"}


@pytest.fixture(scope="module", params=FEWER)
def case(request: Any) -> Case:
    return Case(request.param)


def of_log(case: Case) -> list[str]:
    """Return the lines of the log that show the workqueues and the pools, without their time.

    How long a pool hung, or a work has run, is left out: it goes on after the line.
    """
    texts = [row["text"] for row in case.answer("dmesg")["tables"][0]["rows"]]
    lines = "\n".join(texts[texts.index(_BEGIN) + 1 :]).splitlines()
    shown = re.compile(r"workqueue \S+: flags=|  pwq \d+:|    (in-flight|pending|inactive):|pool \d+:")
    end = next((number for number, line in enumerate(lines) if not shown.match(line)), len(lines))
    plain = (re.sub(r" hung=\d+s| for \d+s", "", line.rstrip()) for line in lines[:end])
    return [re.sub(r" ?, ?", ", ", line) for line in plain]  # some releases put the blank before the comma


class Shown:
    """The lines that the kernel would print, made of the answer of ``workqueues -a``."""

    def __init__(self, case: Case) -> None:
        self.tables = case.tables("workqueues", "-a")
        self._pools = {row["pool"]: row for row in self.tables["pools"]}
        self._is_each = case.guest.kernel.name.startswith(("5.10", "6.1-")) or case.guest.kernel.name == "6.1"
        self._has_limit = case.prog.type("struct pool_workqueue").has_member("max_active")

    def queue(self, name: str) -> list[str]:
        parts = [row for row in self.tables["queues"] if row["workqueue"] == name]
        busy = [row for row in parts if row["active"] or row["inactive"]]
        lines = [f"workqueue {name}: flags={parts[0]['flags']:#x}"] if busy else []
        for row in busy:
            limit = f"/{row['most']}" if self._has_limit else ""
            mayday = " MAYDAY" if row["mayday"] else ""
            about = f"active={row['active']}{limit} refcnt={row['references']}{mayday}"
            lines += [f"  pwq {row['pool']}:{self.about(row['pool'])} {about}", *self._works(name, row["pool"])]
        return lines

    def about(self, number: int) -> str:
        pool = self._pools[number]
        node = f" node={pool['node']}" if pool["node"] is not None else ""
        return f" cpus={pool['cpus']}{node} flags={pool['bits']:#x} nice={pool['nice']}"

    def pool(self, number: int) -> str:
        """Return the line of a pool, up to the number of its workers."""
        return f"pool {number}:{self.about(number)} workers={self._pools[number]['workers']}"

    def _works(self, name: str, pool: int) -> Iterator[str]:
        rows = [row for row in self.tables["works"] if (row["workqueue"], row["pool"]) == (name, pool)]
        for state in ("in-flight", "pending", "inactive"):
            texts = [self._text(row) for row in rows if row["state"] == state]
            if texts:
                yield f"    {state}: {', '.join(texts)}"

    def _text(self, row: dict[str, Any]) -> str:
        function = f"{row['function']} [dmods_busy]" if row["function"].startswith("busy_") else row["function"]
        if row["state"] != "in-flight":
            return ", ".join([function] * row["count"]) if self._is_each else _times(function, row["count"])
        flushed = {each["pid"] for each in row["behind"] if each["pid"]}
        behind = "".join(f" BAR({pid})" for pid in sorted(flushed))
        return f"{row['pid']}{'(RESCUER)' if row['rescuer'] else ''}:{function}{behind}"


def _times(function: str, count: int) -> str:
    return function if count == 1 else f"{count}*{function}"


def test_the_lines_of_the_kernel(case: Case) -> None:
    said, shown = of_log(case), Shown(case)
    for name in sorted(PLANTED):
        at = next(number for number, line in enumerate(said) if line.startswith(f"workqueue {name}:"))
        lines = shown.queue(name)
        assert len(lines) >= 3
        assert said[at : at + len(lines)] == lines
    pools = [line.partition(" manager")[0].partition(" idle")[0] for line in said if line.startswith("pool ")]
    used = {part["pool"] for part in shown.tables["works"] if part["state"] == "in-flight"}
    assert {int(line[5:].partition(":")[0]) for line in pools} >= used
    assert {shown.pool(number) for number in used} <= set(pools)


def test_works_by_default(case: Case) -> None:
    tables = case.tables("workqueues")
    works = [row for row in tables["works"] if row["workqueue"] in PLANTED]
    counts = Counter({(row["state"], row["function"]): 0 for row in works})
    for row in works:
        counts[row["state"], row["function"]] += row["count"]
    assert counts == {
        ("in-flight", "busy_work_sleeps"): 1, ("inactive", "busy_work_behind"): 4, ("inactive", "busy_work_last"): 1,
        ("in-flight", "busy_work_naps"): 2, ("inactive", "busy_work_naps"): 1, ("pending", "busy_work_late"): 3,
        ("behind", "wq_barrier_func"): 1,
    }  # fmt: skip
    (mark,) = (row for row in works if row["state"] == "behind")
    assert (mark["flusher"], mark["name"]) == (case.pid("flusher"), "flusher flushes")
    (sleeper,) = (row for row in works if row["function"] == "busy_work_sleeps")
    assert int(sleeper["work"], 16) == case.truth["work"]
    assert [each["pid"] for each in sleeper["behind"]] == [case.pid("flusher")]
    assert (sleeper["task_state"], sleeper["name"][:7]) == ("I", "kworker")
    reached = {row["workqueue"] for row in tables["queues"] if row["note"] == "max_active reached"}
    assert reached & PLANTED == {"busy_ordered", "busy_bound"}
    limits = {row["workqueue"]: (row["active"], row["most"]) for row in tables["queues"]}
    assert (limits["busy_ordered"], limits["busy_bound"]) == ((1, 1), (2, 2))
    rescuers = {row["workqueue"]: row["rescuer"] for row in tables["queues"]}
    names = {row["pid"]: row["name"] for row in case.tables("ps")["processes"]}
    assert names[rescuers["busy_ordered"]].removeprefix("kworker/R-").startswith("busy_")
    assert rescuers["busy_bound"] is None


def test_since_when(case: Case) -> None:
    lasted = case.last - case.truth["works_since"]
    works = case.tables("workqueues")["works"]
    running = [row for row in works if row["state"] == "in-flight" and row["workqueue"] in PLANTED]
    assert len(running) == 3
    assert {row["age_exact"] for row in running} == {case.prog.type("struct worker").has_member("current_start")}
    assert [row["age_ns"] for row in running] == [pytest.approx(lasted, abs=3 * _SECOND)] * 3
    (due,) = (row for row in case.tables("workqueues", "busy_bound")["delayed"])
    assert (due["function"], int(due["work"], 16)) == ("busy_work_delayed", case.truth["delayed"])
    assert due["due_ns"] == pytest.approx(3000 * _SECOND - lasted, abs=5 * _SECOND)


def test_the_stacks_of_workers(case: Case) -> None:
    works = case.tables("workqueues", "-v", "busy_ordered")["works"]
    (running,) = (row for row in works if row["state"] == "in-flight")
    names = [frame["name"].rpartition("`")[2].partition("+")[0] for frame in running["stack"]]
    assert names.index("busy_work_sleeps") < names.index("process_one_work") < names.index("worker_thread")


def _vmallocinfo(case: Case) -> dict[int, tuple[str, int, int]]:
    """Return (caller as the kernel prints it, bytes, pages) of each area that has a caller, by its start."""
    found = {}
    for line in case.said["/proc/vmallocinfo"].splitlines():
        match = re.match(r"0x([0-9a-f]+)-0x[0-9a-f]+ +(\d+) (\S+\+0x[0-9a-f]+)/", line)
        pages = re.search(r"\bpages=(\d+)", line)
        if match is not None:
            found[int(match[1], 16)] = match[3], int(match[2]), int(pages[1]) if pages else 0
    return found


def test_vmalloc_by_caller(case: Case) -> None:
    """Stacks of threads come and go between the file and the panic. The areas of all others are those of the file."""
    said = _vmallocinfo(case)
    assert len(said) > 50
    sums: dict[str, list[int]] = {}
    for caller, size, pages in said.values():
        total = sums.setdefault(caller, [0, 0, 0])
        for place, amount in enumerate((1, size, pages)):
            total[place] += amount
    rows = case.tables("vmalloc")["callers"]
    assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    found: dict[str, list[int]] = {}
    for row in rows:
        if row["caller"]:
            total = found.setdefault(_plain(row["caller"]), [0, 0, 0])
            for place, name in enumerate(("areas", "bytes", "pages")):
                total[place] += row[name]
    stacks = {caller for caller in sums if re.match(r"kernel_clone|dup_task_struct|copy_process|alloc_thread", caller)}
    others = sums.keys() - stacks
    assert {caller: found.get(caller) for caller in others} == {caller: sums[caller] for caller in others}


def _plain(caller: str) -> str:
    """Return a caller as %pS prints it. dmods names the module first, and leaves out an offset of 0."""
    name = caller.rpartition("`")[2]
    return name if "+" in name else f"{name}+0x0"


def test_kinds_of_areas(case: Case) -> None:
    lines = case.said["/proc/vmallocinfo"].splitlines()
    kinds = {row["kind"]: row["areas"] for row in case.tables("vmalloc")["kinds"]}
    assert kinds["per-CPU"] == sum("pcpu_get_vm_areas+0x0" in line for line in lines) > 0
    assert kinds["ioremap"] == sum(line.endswith("ioremap") or " ioremap " in line for line in lines) > 0
