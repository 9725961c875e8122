"""The parts that a core lacks and why, compared with what the program did; and what doctor says before the crash."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.machine.absent import Absence, absences
from dmods.machine.before_crash import process_findings
from dmods.machine.doctor import Remark
from fixtures import answers, keeping
from tests.corekit import compile_c, kernel_core

SOURCE = Path(__file__).with_name("withheld.c")
MIB = 1 << 20
Loads = list[tuple[int, int, int, int]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(SOURCE, tmp_path_factory.mktemp("withheld") / "withheld")


@pytest.fixture
def waiting(program: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _line in range(4):
        process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def loads(core: Path) -> Loads:
    """Return (offset, address, size in the file, size in memory) of the segments, as readelf sees them."""
    text = subprocess.run(["readelf", "-lW", core], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("LOAD")]
    return [(int(row[1], 16), int(row[2], 16), int(row[4], 16), int(row[5], 16)) for row in rows]


def lacking(core: Path, part: str) -> Absence:
    found = [each for each in absences(CoreFile(str(core))) if part in each.why]
    assert len(found) == 1, absences(CoreFile(str(core)))
    return found[0]


def test_reasons(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, "die", coredump_filter=0x31)
    assert lacking(core, "no bit 1 (0x2)").size == 5 * MIB
    excluded = lacking(core, "MADV_DONTDUMP")
    assert excluded.size == 3 * MIB
    assert "dump-excluded-mappings" in excluded.help
    others = [each for each in absences(CoreFile(str(core))) if "execute-only" not in each.why]
    assert len(others) == 2, others


def test_no_private_memory(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, "die", coredump_filter=0x32)
    assert lacking(core, "no bit 0 (0x1)").size >= 10 * MIB


def test_execute_only_memory_that_is_zeros(program: Path, tmp_path: Path) -> None:
    """Where the processor has protection keys, the kernel writes zeros there; here they are put into the core."""
    output = tmp_path / "said"
    core = kernel_core(program, tmp_path, "die", output=output)
    address = int(re.findall(r"code (0x[0-9a-f]+)", output.read_text())[0], 16)
    offset = next(offset for offset, start, size, _memory in loads(core) if start == address and size)
    with core.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(4096))
    assert lacking(core, "execute-only").size == 4096
    assert any("execute-only" in line for line in answers.printed("doctor", core).splitlines())


def test_which_limit_cut_it(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    silent = keeping.journal(tmp_path / "silent", [])
    monkeypatch.setenv("PATH", f"{silent}:{os.environ['PATH']}")
    work = tmp_path / "work"
    work.mkdir()
    core = kernel_core(program, work, "die")
    os.truncate(core, MIB)  # the limit in the attributes of systemd's file
    assert "a full disk" in lacking(core, "is cut").why
    kept = keeping.systemd(core, tmp_path / "root")
    assert "1048576 bytes (RLIMIT_CORE)" in lacking(kept, "is cut").why
    os.removexattr(kept, "user.coredump.rlimit")
    told = {"PID": "1603", "TIMESTAMP": str(1_700_000_000 * 1_000_000), "TRUNCATED": "1"}
    keeping.journal(silent, [told])
    assert "systemd-coredump says so" in lacking(kept, "is cut").why


def found(process: subprocess.Popen[str], **options: str) -> dict[str, Remark]:
    return {each.what: each for each in process_findings(process.pid, **options)}


def machine(folder: Path, process: subprocess.Popen[str], pattern: str, flags: str = "fpu") -> str:
    """Make a /proc with this core_pattern and these processor's flags."""
    (folder / "proc/sys/kernel").mkdir(parents=True)
    (folder / "proc/sys/kernel/core_pattern").write_text(pattern + "\n")
    (folder / "proc/cpuinfo").write_text(f"flags\t\t: {flags}\n")
    (folder / "proc" / str(process.pid)).symlink_to(f"/proc/{process.pid}")
    return str(folder / "proc")


def test_before_the_crash(waiting: subprocess.Popen[str], program: Path, tmp_path: Path) -> None:
    Path(f"/proc/{waiting.pid}/coredump_filter").write_text("0x31")
    resource.prlimit(waiting.pid, resource.RLIMIT_CORE, (MIB, resource.RLIM_INFINITY))
    proc = machine(tmp_path, waiting, "core", "fpu pku")
    said = found(waiting, proc=proc)
    assert "no bit 1: 5.0M in 1 mapping of shared anonymous memory" in said["coredump_filter"].found
    assert said["coredump_filter"].help == f"echo 0x33 > /proc/{waiting.pid}/coredump_filter"
    assert "3.0M in 1 mapping" in said["MADV_DONTDUMP"].found
    assert "4.0K in 1 mapping" in said["execute-only memory"].found
    assert "1.0M: its core of 7." in said["core size limit"].found
    assert said["core size limit"].help.startswith(f"prlimit --pid {waiting.pid} --core=unlimited")
    assert os.getcwd() in said["its core goes to"].found
    subprocess.run(["sh", "-c", said["coredump_filter"].help], check=True)
    assert "nothing" in found(waiting, proc=proc)["coredump_filter"].found
    resource.prlimit(waiting.pid, resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
    assert "no core" in found(waiting, proc=proc)["core size limit"].found


def test_systemd_keeps_it(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    resource.prlimit(waiting.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    proc = machine(tmp_path, waiting, "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h")
    root = tmp_path / "root"
    (root / "etc/systemd/coredump.conf.d").mkdir(parents=True)
    (root / "var/lib/systemd/coredump").mkdir(parents=True)
    assert "systemd" not in found(waiting, proc=proc, root=str(root))
    (root / "etc/systemd/coredump.conf").write_text("[Coredump]\n#ProcessSizeMax=1K\nExternalSizeMax=32G\n")
    (root / "etc/systemd/coredump.conf.d/10-small.conf").write_text("[Coredump]\nExternalSizeMax=4M\n")
    said = found(waiting, proc=proc, root=str(root))
    assert said["systemd"].found.startswith("ExternalSizeMax=4M")
    assert "free disk" in said
    (root / "etc/systemd/coredump.conf").write_text("Storage=none\n")
    assert "keeps no cores" in found(waiting, proc=proc, root=str(root))["systemd"].found


def test_its_core_is_as_long_as_was_said(waiting: subprocess.Popen[str], program: Path, tmp_path: Path) -> None:
    """The kernel's core of the same program has the bytes that were said, but for first pages of files (bit 4)."""
    core = kernel_core(program, tmp_path, "die")
    length = found(waiting, proc=machine(tmp_path / "machine", waiting, "core"))["its core"].found.split()[0]
    written = sum(size for _offset, _address, size, _memory in loads(core))
    assert abs(float(length.rstrip("M")) * MIB - written) < 0.6 * MIB  # said in whole megabytes


def test_doctor_of_a_pid(waiting: subprocess.Popen[str]) -> None:
    rows = {row["what"]: row["found"] for row in answers.typed("doctor", waiting.pid)["tables"][0]["rows"]}
    assert rows["process"].startswith(f"{waiting.pid}: ")
    assert "MADV_DONTDUMP" in rows
