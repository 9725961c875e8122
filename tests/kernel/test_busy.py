"""The everyday commands, compared with what the kernel of a busy guest said of itself just before it died.

fixtures/kernel/busy_guest plants what there is to see. /proc/meminfo is from the panic itself, so it is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import drgn
import pytest
from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.percpu import per_cpu

from dmods.command import KERNEL
from drgnext.kernel.dump.target import Kernel
from fixtures import answers
from fixtures.kernel import busy
from tests.kernel.memory import FEWER

pytestmark = pytest.mark.thorough("it needs a busy guest")
Rows = list[dict[str, Any]]


class Case:
    """A busy guest whose dump is open, and the answers of the commands."""

    def __init__(self, release: str) -> None:
        self.guest = busy.guest(release)
        self.said, self.truth = self.guest.said, self.guest.truth
        self.prog = drgn.Program()
        self.prog.set_core_dump(str(self.guest.vmcore))
        self.prog.load_debug_info([str(path) for path in (self.guest.kernel.vmlinux, *self.guest.modules)])
        self.kernel = Kernel(self.prog)
        self.tables = cache(self._tables)

    def answer(self, *words: str) -> dict[str, Any]:
        return answers.answer(self.kernel, *words, side=KERNEL)

    def _tables(self, *words: str) -> dict[str, Rows]:
        answer = self.answer(*words)
        assert answer["notes"] == []
        return answers.by_name(answer)

    def pid(self, name: str) -> int:
        return self.truth[f"pid_{name}"]

    @property
    def pids(self) -> list[int]:
        """Return the processes that slept when the kernel was asked, and so sleep in the dump."""
        busy_ones = {self.pid(f"spin_{each}") for each in "abc"} | {1}
        found = {int(path.split("/")[2]) for path in self.said if re.fullmatch(r"/proc/\d+/stat", path)}
        return sorted(found - busy_ones)

    def stat(self, pid: int) -> list[str]:
        """Return the fields of /proc/PID/stat: the state first, then the parent."""
        return self.said[f"/proc/{pid}/stat"].rpartition(") ")[2].split()

    @property
    def last(self) -> int:
        """Return the last moment that the guest's log or a run queue shows, in ns of local_clock()."""
        queues = (per_cpu(self.prog["runqueues"], cpu) for cpu in for_each_possible_cpu(self.prog))
        log = self.answer("dmesg")["tables"][0]["rows"][-1]["time"]
        return max(int(log * 1e9), *(int(queue.clock) for queue in queues))

    @property
    def since_oracle(self) -> int:
        """Return the least ns from the moment when init asked the kernel to the panic."""
        return int(self.prog["busy_died"]) - self.truth["clock"]


@pytest.fixture(scope="module", params=FEWER)
def case(request: Any) -> Iterator[Case]:
    return Case(request.param)


def kilobytes(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None, (name, text)
    return int(found[1])


def test_meminfo_to_the_page(case: Case) -> None:
    """During the panic the kernel itself wrote the file into its memory."""
    text = case.prog["busy_meminfo"].string_().decode()
    said = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in text.splitlines())}
    # A panic takes the other CPUs offline, and the kernel then leaves out their part of this one.
    said["Committed_AS"] = kilobytes(case.said["/proc/meminfo"], "Committed_AS")
    found = {row["name"]: row["value"] for row in case.tables("meminfo")["meminfo"]}
    assert {name: value for name, value in found.items() if said.get(name) != value} == {}
    assert list(found) == list(said)


def test_ps(case: Case) -> None:
    rows = {row["pid"]: row for row in case.tables("ps")["processes"]}
    for pid in case.pids:
        state, parent, *_rest = case.stat(pid)
        row = rows[pid]
        name = case.said[f"/proc/{pid}/stat"].partition("(")[2].rpartition(")")[0]
        # /proc has the whole name of a kernel thread, and of a kworker its work too.
        assert (row["ppid"], row["name"]) == (int(parent), name[:15]) or "kworker" in name
        # A kernel thread runs, or waits for its disk, at any moment: that of the file system's journal is one.
        if not row["kernel_thread"]:
            assert row["state"] == state, name
    for name in ("spin_a", "spin_b", "spin_c"):
        assert rows[case.pid(name)]["state"] == "R"


def test_ps_memory(case: Case) -> None:
    rows = {row["pid"]: row for row in case.tables("ps")["processes"]}
    for name in ("server", "web", "inner", "filer", "swapped", "middle"):
        text = case.said[f"/proc/{case.pid(name)}/smaps_rollup"]
        row = rows[case.pid(name)]
        assert (row["rss"] >> 10, row["swap"] >> 10) == (kilobytes(text, "Rss"), kilobytes(text, "Swap")), name
    assert rows[case.pid("swapped")]["swap"] == 600 * 4096
    first = case.tables("ps")["processes"][0]
    assert first["rss"] + first["swap"] == max((row["rss"] or 0) + (row["swap"] or 0) for row in rows.values())


def test_ps_wchan_and_age(case: Case) -> None:
    rows = {row["pid"]: row for row in case.tables("ps")["processes"]}
    told = 0
    for name, pid in ((name[4:], pid) for name, pid in case.truth.items() if name.startswith("pid_")):
        wchan = case.said.get(f"/proc/{pid}/wchan", "0")
        if wchan not in ("", "0") and "spin" not in name and name != "zombie":
            # A system call has several names.
            assert case.prog.symbol(rows[pid]["wchan"]).address == case.prog.symbol(wchan).address, name
            told += 1
    assert told >= 10 or case.guest.kernel.name == "5.10"  # 5.10 needs frame pointers for it
    age = rows[case.pid("wait_mutex")]["age_ns"]
    assert case.since_oracle <= age <= case.last - case.truth["mutex_waits_since"] + 1000


def test_locks_on_files(case: Case) -> None:
    """A line of /proc/locks: number, perhaps -> for a waiter, kind, ADVISORY, access, pid, device:inode, start, end."""
    held, waiting = set(), []
    for line in case.said["/proc/locks"].splitlines():
        words = line.split()
        if words[1] == "->":
            waiting.append((words[0], int(words[5])))
        else:
            kind, _how, access, pid, _file, start, end = words[1:]
            held.add((kind, access.lower(), int(pid), int(start), None if end == "EOF" else int(end)))
    rows = case.tables("locks", "-a")["files"]
    # /proc says -1 for the pid of a lock of an open file description.
    pids = [-1 if row["kind"] == "OFDLCK" else row["pid"] for row in rows]
    assert {(row["kind"], row["access"], pid, row["start"], row["end"]) for row, pid in zip(rows, pids)} == held
    assert {each["pid"] for row in rows for each in row["waiting"]} == {pid for _number, pid in waiting}
    own = case.pid("flocker")
    paths = {(row["kind"], row["access"], row["file"]) for row in rows if row["pid"] == own}
    assert paths == {
        ("FLOCK", "write", "/mnt/whole"), ("OFDLCK", "write", "/mnt/whole"),
        ("POSIX", "read", "/mnt/part"), ("POSIX", "write", "/mnt/part"),
    }  # fmt: skip
    waited = {row["file"]: [each["name"] for each in row["waiting"]] for row in case.tables("locks")["files"]}
    assert waited == {"/mnt/whole": ["want_flock"], "/mnt/part": ["want_part"]}


def test_locks(case: Case) -> None:
    tables = case.tables("locks")
    rows = {row["name"]: row for row in tables["waiting"]}
    pid = case.pid
    real_time = case.guest.kernel.source.flavour == "rt"
    dead = {"deadlock_one", "deadlock_two"}
    stuck = {"middle", "wait_mutex", "write_rwsem", "write_read", "semaphore", "read_slow", "flusher", *dead}
    assert set(rows) == stuck == {row["name"] for row in case.tables("ps", "-S", "D")["processes"]}
    expected = {
        "middle": ("rwsem", "read", "rwsem", "hold_rwsem", True),
        "wait_mutex": ("mutex", "", "mutex", "middle", True),
        "write_rwsem": ("rwsem", "write", "rwsem", "hold_rwsem", True),
        # A rwsem of PREEMPT_RT counts its readers, and names none (kernel/locking/rwbase_rt.c).
        "write_read": ("rwsem", "write", "read", None if real_time else "hold_read", False),
    }
    for name, (kind, wants, lock, owner, sure) in expected.items():
        row = rows[name]
        held_by = None if owner is None else pid(owner)
        assert (row["kind"], row["wants"], row["owner"], row["sure"]) == (kind, wants, held_by, sure)
        assert int(row["lock"], 16) == case.truth[lock]
        assert row["lock_name"] == {"mutex": "busy_mutex", "rwsem": "busy_rwsem", "read": "busy_read"}[lock]
    assert rows["write_read"]["readers"] == 1
    assert (rows["semaphore"]["kind"], int(rows["semaphore"]["lock"], 16)) == ("semaphore", case.truth["semaphore"])
    assert rows["read_slow"]["kind"] is None
    chain = [(link["pid"], link["owner"]) for link in rows["wait_mutex"]["chain"]]
    assert chain == [(pid("wait_mutex"), pid("middle")), (pid("middle"), pid("hold_rwsem"))]
    holders = {row["pid"]: row["behind"] for row in tables["holders"]}
    assert holders[pid("hold_rwsem")] == 3
    assert {name for name, row in rows.items() if row["deadlock"]} == dead
    assert [rows[name]["owner"] for name in ("deadlock_one", "deadlock_two")] == [
        pid("deadlock_two"),
        pid("deadlock_one"),
    ]
    assert case.answer("locks")["totals"]["deadlocked"] == 2


def _net(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def _address(text: str) -> str:
    """Return an address of /proc/net/tcp as the command writes it: words of it are in the machine's byte order."""
    import ipaddress

    where, port = text.split(":")
    data = b"".join(bytes.fromhex(where[at : at + 8])[::-1] for at in range(0, len(where), 8))
    name = f"{ipaddress.IPv4Address(data)}" if len(data) == 4 else f"[{ipaddress.IPv6Address(data)}]"
    return f"{name}:{int(port, 16)}"


def test_sockets_of_tcp(case: Case) -> None:
    from drgnext.kernel.system.sockets import STATES

    rows = case.tables("sockets")["sockets"]
    found = {
        (row["local"], row["remote"], row["state"], row["sent"] or 0, row["received"] or 0, row["inode"])
        for row in rows
        if row["protocol"].startswith("tcp") and row["state"] != "LISTEN"
    }
    said = set()
    listening = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for _slot, local, remote, state, queues, *rest in _net(case.said[name]):
            sent, received = (int(part, 16) for part in queues.split(":"))
            line = _address(local), _address(remote), STATES[int(state, 16)], sent, received, int(rest[4])
            (listening if line[2] == "LISTEN" else said).add(line)
    assert found <= said
    # Its time may end between the kernel's word and the crash.
    assert {line[2] for line in said - found} <= {"TIME_WAIT", "FIN_WAIT2"}
    listeners = {(row["local"], row["received"], row["inode"]) for row in rows if row["state"] == "LISTEN"}
    assert listeners >= {(line[0], line[4], line[5]) for line in listening}


def test_who_holds_sockets(case: Case) -> None:
    rows = case.tables("sockets")["sockets"]
    server = case.pid("server")
    by_fd = {(owner["pid"], owner["fd"]): row for row in rows for owner in row["owners"]}
    expected = {
        "listener": ("tcp", "LISTEN", 1, 7), "server": ("tcp", "ESTAB", 1234, 0), "talks": ("tcp", "ESTAB", 0, 0),
        "close_wait": ("tcp", "CLOSE_WAIT", 1, 0), "listener6": ("tcp6", "LISTEN", 0, 5),
        "udp": ("udp", "CLOSE", 600, 0), "unix_listener": ("unix", "LISTEN", 0, 3),
        "unread": ("unix", "ESTAB", 700, 0),
    }  # fmt: skip
    for name, want in expected.items():
        row = by_fd[server, case.truth[f"fd_{name}"]]
        assert (row["protocol"], row["state"], row["received"], row["sent"]) == want, name
        assert row["owners"][0]["name"] == "server"
    assert by_fd[server, case.truth["fd_carrier"]]["received"] == 5
    assert by_fd[server, case.truth["fd_abstract"]]["local"] == "@abstract"
    assert by_fd[server, case.truth["fd_unix_listener"]]["local"] == "/tmp/listening"
    unheld = {(row["held"], row["protocol"], row["local"].rpartition(":")[2]) for row in rows if not row["owners"]}
    assert {
        ("in flight", "tcp", "6000"),
        ("in flight", "unix", "/tmp/flies"),
        ("not accepted", "tcp", "8080"),
    } <= unheld
    closed = {row["local"]: row for row in rows if row["held"] in ("orphan", "time wait")}
    orphan = closed.pop(f"127.0.0.1:{case.truth['port_full']}")
    assert (orphan["held"], orphan["state"], orphan["remote"]) == ("orphan", "FIN_WAIT1", "127.0.0.1:8080")
    assert orphan["sent"] > 0
    # The kernel knows the other one as an orphan, then as a socket in time wait, and a minute later no more.
    assert set(closed) <= {f"127.0.0.1:{case.truth['port_leaves']}"}
    assert {held for held, *_rest in unheld} <= {"in flight", "not accepted", "orphan", "time wait"}


def test_sockets_of_udp_and_unix(case: Case) -> None:
    rows = case.tables("sockets")["sockets"]
    udp = {(row["local"], row["inode"], row["memory"]) for row in rows if row["protocol"] == "udp"}
    lines = _net(case.said["/proc/net/udp"])
    assert udp == {(_address(line[1]), int(line[9]), int(line[4].split(":")[1], 16)) for line in lines}
    unix = {(row["inode"], row["local"]) for row in rows if row["protocol"] == "unix"}
    lines = _net(case.said["/proc/net/unix"])
    assert unix == {(int(line[6]), line[7] if len(line) > 7 else "") for line in lines}


def test_dmesg(case: Case) -> None:
    lines = set(answers.text(case.kernel, "dmesg", side=KERNEL).splitlines())
    console = (case.guest.directory / "console").read_text(errors="replace").replace("\r", "").splitlines()
    printed = {line.replace("\t", "\\t") for line in console if re.match(r"\[ *\d+\.\d{6}\] ", line)}
    assert len(printed) > 100
    # Programs write to the console, too, also in the middle of a line of the kernel: it then has letters of theirs.
    at: dict[str, list[str]] = {line[:14]: [] for line in lines}
    for line in lines:
        at[line[:14]].append(line)
    foreign = [line for line in printed - lines if not any(_within(known, line) for known in at.get(line[:14], []))]
    assert not foreign
    assert len(printed - lines) <= 5


def _within(text: str, longer: str) -> bool:
    """Return whether the letters of a text stand in another one, in that order."""
    letters = iter(longer)
    return all(letter in letters for letter in text)


def test_files(case: Case) -> None:
    for name in ("filer", "server", "read_slow"):
        pid = case.pid(name)
        rows = {row["fd"]: row for row in case.tables("files", str(pid))["files"]}
        links = {path: text for path, text in case.said.items() if path.startswith(f"/proc/{pid}/fd/")}
        assert {int(path.rpartition("/")[2]) for path in links} == set(rows)
        for path, text in links.items():
            row = rows[int(path.rpartition("/")[2])]
            assert row["path"] == text
            information = dict(line.split(":") for line in case.said[path.replace("/fd/", "/fdinfo/")].splitlines())
            assert row["position"] == int(information["pos"])
            # /proc adds O_CLOEXEC, which belongs to the number of the file.
            assert row["flags"] | 0o2000000 == int(information["flags"], 8) | 0o2000000


def test_mounts(case: Case) -> None:
    rows = case.tables("mounts")["mounts"]
    said = [line.split() for line in case.said["/proc/mounts"].splitlines()]
    assert {(row["source"], row["target"], row["type"]) for row in rows} == {tuple(line[:3]) for line in said}
    options = {line[1]: set(line[3].split(",")) for line in said}
    for row in rows:
        assert set(row["options"].split(",")) <= options[row["target"]]


def test_memcgs(case: Case) -> None:
    rows = {row["path"]: row for row in case.tables("memcgs")["memcgs"]}
    assert set(rows) == {"/", "/web", "/web/outer", "/web/inner", "/lazy"}
    for path in ("/web", "/web/outer", "/web/inner", "/lazy"):
        assert rows[path]["current"] == int(case.said[f"/sys/fs/cgroup{path}/memory.current"]), path
    assert rows["/web"]["limit"] == int(case.said["/sys/fs/cgroup/web/memory.max"])
    assert rows["/web/inner"]["limit"] is None
    assert [rows[path]["processes"] for path in ("/web", "/web/outer", "/web/inner")] == [0, 1, 1]


def test_swapinfo(case: Case) -> None:
    tables = case.tables("swapinfo")
    found = {
        (row["path"], row["type"], row["size"] >> 10, row["used"] >> 10, row["priority"]) for row in tables["areas"]
    }
    lines = (line.split() for line in case.said["/proc/swaps"].splitlines()[1:])
    assert found == {(line[0], line[1], int(line[2]), int(line[3]), int(line[4])) for line in lines}
    assert [row["pid"] for row in tables["users"]] == [case.pid("swapped")]


def test_runq(case: Case) -> None:
    tables = case.tables("runq")
    spinners = {case.pid(f"spin_{each}") for each in "abc"}
    assert {row["pid"] for row in tables["tasks"] if row["cpu"] == 1} >= spinners
    assert sum(row["state"] == "running" for row in tables["tasks"] if row["cpu"] == 1) <= 1
    queues = {row["cpu"]: row for row in tables["queues"]}
    assert queues[1]["count"] == sum(row["cpu"] == 1 for row in tables["tasks"])
    assert (queues[0]["pid"], queues[0]["current"]) == (1, "init")
    before = [float(word) for word in case.said["/proc/loadavg"].split()[:3]]
    # Every five seconds the first takes up a twelfth of the tasks that run or are stuck, of which there are a dozen.
    # Init reads it a little before its clock, and on a busy machine the crash comes some seconds later.
    updates = 2 + case.since_oracle // 5_000_000_000
    assert case.answer("runq")["totals"]["load"] == pytest.approx(before, abs=1.25 * updates)


def test_irq(case: Case) -> None:
    tables = case.tables("irq", "-a")
    found = {row["irq"]: row for row in tables["devices"]} | {row["name"]: row for row in tables.get("machine", [])}
    header, *lines = case.said["/proc/interrupts"].splitlines()
    cpus = len(header.split())
    devices = 0
    for line in lines:
        name, *rest = line.replace(":", " ", 1).split()
        counts = [int(word) for word in rest[:cpus] if word.isdigit()]
        if name.isdigit():
            row = found[name]
            devices += 1
            assert row["names"] == "" or rest[-1] in row["names"].split(", ")
            assert row["chip"] == rest[cpus]
        elif name not in found or len(counts) < cpus:
            continue
        assert all(now >= before for now, before in zip(found[name]["counts"], counts)), line
        assert sum(found[name]["counts"]) <= sum(counts) + 100_000
    assert devices >= 5
    softirqs = {row["name"]: row["counts"] for row in tables["softirqs"]}
    for line in case.said["/proc/softirqs"].splitlines()[1:]:
        name, *counts = line.replace(":", " ").split()
        assert all(now >= int(before) for now, before in zip(softirqs[name], counts)), line


def test_netdev(case: Case) -> None:
    (row,) = (row for row in case.tables("netdev")["devices"] if row["name"] == "lo")
    line = case.said["/proc/net/dev"].partition("lo:")[2].splitlines()[0].split()
    said = dict(zip(("rx_bytes", "rx_packets"), map(int, line))) | dict(
        zip(("tx_bytes", "tx_packets"), map(int, line[8:]))
    )
    # The kernel goes on to ask the reader that has no room whether it has some now.
    assert all(said[name] <= row[name] <= said[name] + 10_000 for name in said)
    assert (row["rx_bytes"], row["rx_packets"]) == (row["tx_bytes"], row["tx_packets"])
    assert (row["state"], row["mtu"], row["ipv4"]) == ("up", 65536, ["127.0.0.1/8"])


def test_inflight(case: Case) -> None:
    tables = case.tables("inflight", "-a")
    said = {line.split()[2]: int(line.split()[11]) for line in case.said["/proc/diskstats"].splitlines()}
    (source,) = (line.split()[0] for line in case.said["/proc/mounts"].splitlines() if line.split()[1] == "/mnt")
    journal = source.rpartition("/")[2]  # its file system writes at any moment
    in_flight = {row["disk"]: row["in_flight"] for row in tables["disks"] if row["disk"] != journal}
    assert in_flight == {name: said[name] for name in in_flight}
    assert sum(in_flight.values()) == 1
    (request,) = (row for row in tables["requests"] if row["disk"] != journal)
    assert (request["operation"], request["size"], request["sector"] % 128) == ("read", 64 << 10, 0)
    assert case.since_oracle - 100_000_000 <= request["age_ns"] <= case.last  # the clock is that of the last tick


def test_dentries(case: Case) -> None:
    answer = case.answer("dentries")
    tables = answers.by_name(answer)
    counted = answer["totals"]["counted"]
    said = [int(word) for word in case.said["/proc/sys/fs/dentry-state"].split()]
    assert counted["negative"] == answer["totals"]["negative"] == pytest.approx(said[4], abs=5)
    assert answer["totals"]["dentries"] <= counted["dentries"]
    assert counted["dentries"] >= said[0] - 1000
    (ext4,) = (row for row in tables["file_systems"] if row["type"] == "ext4")
    assert ext4["negative"] == case.truth["negative"]
    files = {row["path"]: row["cached"] for row in tables["files"]}
    assert files["/big"] == 300 * 4096
    assert files["/swapfile"] == 2048 * 4096 or "/swapfile" in files


def test_timers(case: Case) -> None:
    rows = {int(row["timer"], 16): row for row in case.tables("timers")["timers"]}
    for name, function, seconds in (("timer", "busy_timer_fires", 1000), ("hrtimer", "busy_hrtimer_fires", 2000)):
        row = rows[case.truth[name]]
        assert row["function"] == function
        assert seconds - case.last / 1e9 - 1 <= row["expires_ns"] / 1e9 <= seconds + 1
    said = set(re.findall(r"^ #\d+: <\w+>, (\w+)", case.said["/proc/timer_list"], re.MULTILINE))
    # What only runs while init asks is not there later: sleeps, alarms, the tick while tasks share a CPU.
    assert said - {row["function"] for row in rows.values()} <= {"hrtimer_wakeup", "it_real_fn", "hrtick"}
    assert len(said) >= 2
