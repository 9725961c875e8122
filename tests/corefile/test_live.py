"""A live process as a core: what gcore says at the same stop is what a picture says, and the process runs on."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.live import picture
from dmods.corefile.live.picture import open_process
from dmods.corefile.live.room import free_memory
from dmods.corefile.target import CoreFile
from fixtures import answers, cores, software, userlands
from fixtures.limits import HANG
from fixtures.programs import PROGRAMS
from tests.livekit import Load, grown, running, states, status, stop, touched, wait_for

SAME = (  # commands whose whole answer is the same
    ("findleaks", "-d"), ("walk", "buf"), ("heapcheck",), ("stacks",), ("owners",), ("panicinfo",),
)  # fmt: skip
# Without these capabilities nobody may open /proc/PID/map_files. An ordinary user does not have them.
FEW_RIGHTS = ("setpriv", "--bounding-set", "-sys_admin,-checkpoint_restore") if os.geteuid() == 0 else ()


def same(answer: dict[str, Any]) -> tuple[Any, ...]:
    """Return the tables and totals without what only the kernel knows: which pages of zeros were touched."""
    totals = {name: value for name, value in answer["totals"].items() if name != "memory"}
    if "never_bytes" in totals:
        totals["top_bytes"] += totals.pop("never_bytes")
    tables = [
        [
            {name: value for name, value in row.items() if "never_bytes" not in answer["totals"] or name != "percent"}
            for row in table["rows"]
            if not str(row.get("owner")).startswith(("free at the top", "free, and never"))
        ]
        for table in answer["tables"]
    ]
    return tables, totals


def typed_with_few_rights(*words: object) -> dict[str, Any]:
    done = answers.finished(*FEW_RIGHTS, sys.executable, "-m", "dmods", *words, "--json", cwd=answers.ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_picture_says_what_gcore_says_at_the_same_stop(program: Path, tmp_path: Path) -> None:
    with running(program) as server, Load(server) as load:
        load.until(50)
        stop(server.pid)
        before, touched_before = status(server.pid), touched(server.pid)
        answered = {words: answers.typed(words[0], "-p", server.pid, *words[1:]) for words in SAME}
        with_few_rights = {words: typed_with_few_rights(words[0], "-p", server.pid, *words[1:]) for words in SAME[:2]}
        after, touched_after = status(server.pid), touched(server.pid)
        core = tmp_path / "core.1603"
        # gdb is last: it may let the process run on.
        gdb = ["gdb", "-nx", "-batch", "-p", str(server.pid), "-ex", f"gcore {core}"]
        subprocess.run(gdb, check=True, capture_output=True, timeout=HANG)
        os.kill(server.pid, signal.SIGCONT)
        load.until(50)
    assert after["State"] == before["State"] == "T (stopped)"
    assert after["TracerPid"] == "0"
    assert after["VmPTE"] == before["VmPTE"]
    assert touched_before.keys() == touched_after.keys()
    assert not grown(touched_before, touched_after)
    for words, found in answered.items():
        expected = answers.typed(words[0], core, *words[1:])
        # What /proc says beside: tests/corefile/test_live_context.py.
        found["tables"] = [table for table in found["tables"] if table["name"] != "kept"]
        assert any(table["rows"] for table in expected["tables"]), words
        assert same(found) == same(expected), words
        assert found["target"] == f"process {server.pid}"
        assert same(with_few_rights.get(words, found)) == same(found)
    for found in with_few_rights.values():
        assert any(note.startswith("4096 bytes of mapped files are not in the picture") for note in found["notes"])


def test_pages_of_deleted_files_that_were_never_touched(program: Path) -> None:
    with running(program) as server:
        stop(server.pid)
        before = touched(server.pid)
        target = open_process(server.pid)
        deleted = [each for each in target.mappings() if (each.path or "").endswith("(deleted)")]
        ranges = [f"/proc/{server.pid}/map_files/{each.start:x}-{each.end:x}" for each in deleted]
        found = {target.read(each.start + 4096, 4) for each in deleted}
        assert found == {b"open", b"lost" if os.access(ranges[0], os.R_OK) else bytes(4)}
        assert not grown(before, touched(server.pid))


LIBRARY = "const unsigned char big[1 << 20] = {[0 ... (1 << 20) - 1] = 7}; int one(void) { return big[1]; }"
HOLDER = """
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    return !dlopen(argv[1], RTLD_NOW) || unlink(argv[1]) || puts("ready") < 0 || fflush(stdout) || pause();
}
"""
SEVENS = """
import sys
from dmods.corefile.live.picture import open_process
target = open_process(int(sys.argv[1]))
parts = [each for each in target.mappings() if (each.path or "").endswith("libbig.so (deleted)")]
print(sum(target.read(each.start, each.size).count(7) for each in parts if each.flags == "r--"), target.notes[1:])
"""


def test_code_of_a_deleted_library_is_there_with_few_rights(tmp_path: Path) -> None:
    """Stacks cannot be unwound without it: it is read through the process where nobody else can open the file."""
    for name, source, *options in (("libbig.so", LIBRARY, "-shared", "-fPIC"), ("holder", HOLDER)):
        words = ["gcc", "-x", "c", "-", "-o", str(tmp_path / name), *options]
        subprocess.run(words, input=source, text=True, check=True)
    with subprocess.Popen([tmp_path / "holder", tmp_path / "libbig.so"], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            done = answers.finished(*FEW_RIGHTS, sys.executable, "-c", SEVENS, holder.pid, cwd=answers.ROOT)
        finally:
            holder.kill()
    sevens, _, notes = done.stdout.strip().partition(" ")
    assert int(sevens) >= 1 << 20, done.stderr
    assert "not in the picture" not in notes


def test_a_server_under_load_answers_every_request(program: Path) -> None:
    with running(program, 8) as server, Load(server) as load:
        for _ in range(3):
            load.until(20)
            done = answers.dmods("findleaks", "-p", server.pid)
            assert done.returncode == 0, done.stderr
            assert "stood still for" in done.stderr
            assert re.search(r"^malloc-1240 +7 ", done.stdout, re.MULTILINE), done.stdout
            assert status(server.pid)["TracerPid"] == "0"
            assert not {"t", "T"} & set(states(server.pid))
        load.until(20)


def test_dmods_that_is_killed_lets_the_process_run_on(program: Path) -> None:
    with running(program, 64) as server, Load(server) as load:
        caught = 0
        while caught < 3:
            dmods = subprocess.Popen([sys.executable, "-m", "dmods", "maps", "-p", str(server.pid)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            while dmods.poll() is None:
                if "t" in states(server.pid):
                    caught += 1
                    dmods.kill()
                    dmods.wait()
            load.until(10)
            assert status(server.pid)["TracerPid"] == "0"
            assert not {"t", "T"} & set(states(server.pid))


def test_a_killed_dmods_leaves_a_stopped_process_stopped(program: Path) -> None:
    with running(program, 64) as server:
        stop(server.pid)
        caught = False
        while not caught:
            dmods = subprocess.Popen([sys.executable, "-m", "dmods", "maps", "-p", str(server.pid)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            while dmods.poll() is None and not caught:
                caught = "t" in states(server.pid)
            dmods.kill()
            dmods.wait()
        wait_for(lambda: states(server.pid) == ["T"])
        assert status(server.pid)["TracerPid"] == "0"
        os.kill(server.pid, signal.SIGCONT)
        assert server.asked(1) == 2


def test_the_picture_is_a_core_that_other_tools_read(program: Path) -> None:
    with running(program, far=4096) as server:
        stop(server.pid)
        target = open_process(server.pid)
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        path = f"/proc/{os.getpid()}/fd/{_descriptor(target)}"
        with open(path, "rb") as file, open(f"/proc/{server.pid}/mem", "rb") as memory:
            core = ELFFile(file)
            loads = [each for each in core.iter_segments() if each["p_type"] == "PT_LOAD"]
            notes = [note for each in core.iter_segments() if each["p_type"] == "PT_NOTE" for note in each.iter_notes()]
            lines = [line.split(maxsplit=5) for line in maps.splitlines()]
            assert [f"{each['p_vaddr']:x}-{each['p_vaddr'] + each['p_memsz']:x}" for each in loads] == [
                line[0].lstrip("0") for line in lines
            ]
            for each in loads:  # the memory itself, where it was touched
                for start, size in data_in(file, each["p_offset"], each["p_filesz"]):
                    file.seek(start)
                    memory.seek(each["p_vaddr"] + start - each["p_offset"])
                    assert file.read(size) == memory.read(size)
            sparse = next(each for each in loads if each["p_vaddr"] == server.sparse)
            assert sparse["p_filesz"] == 8 << 30
            assert data_in(file, sparse["p_offset"], 8 << 30) == [(sparse["p_offset"] + (4 << 30), 4096)]
            kinds = [note["n_type"] for note in notes]
            assert {"NT_PRSTATUS", "NT_PRPSINFO", "NT_AUXV", "NT_FILE"} <= set(kinds)
            named = next(note["n_desc"] for note in notes if note["n_type"] == "NT_FILE")
            files = [line[5] for line in lines if line[4] != "0"]
            assert [name.decode() for name in named["filename"]] == files
        said = subprocess.run(
            ["gdb", "-nx", "-batch", str(program), "-ex", f"core-file {path}", "-ex", "bt"],
            capture_output=True, text=True, check=True, timeout=HANG,
        ).stdout  # fmt: skip
        assert re.search(r"#\d+ .* in main \(", said), said
        assert os.stat(path).st_blocks * 512 < 8 << 20


def _descriptor(target: CoreFile) -> int:
    return int(target._core.rpartition("/")[2])


def data_in(file: io.BufferedReader, start: int, size: int) -> list[tuple[int, int]]:
    """Return the parts of a sparse file that are no holes."""
    found, at, end = [], start, start + size
    while at < end:
        try:
            data = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:
            break
        at = min(end, os.lseek(file.fileno(), data, os.SEEK_HOLE))
        if data < end:
            found.append((data, at - data))
    return found


def test_a_file_where_memory_is_short(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with running(program, 8) as server:
        stop(server.pid)
        in_memory = open_process(server.pid)
        monkeypatch.setattr(picture, "free_memory", lambda: 0)
        on_disk = open_process(server.pid)
        assert list((tmp_path / "dmods" / "cores").iterdir()) == []
        assert os.stat(f"/proc/self/fd/{_descriptor(on_disk)}").st_mode & 0o777 == 0o600
        for words in (("findleaks", "-d"), ("maps",), ("stacks",)):
            assert answers.answer(on_disk, *words) == {
                **answers.answer(in_memory, *words), "notes": answers.answer(on_disk, *words)["notes"]
            }  # fmt: skip


def test_the_memory_that_may_be_taken(tmp_path: Path) -> None:
    """The least of what the machine and each control group have left. The rest of 256 MB stays free."""
    for name, text in {
        "proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8388608 kB\n",
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "1000000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(str(tmp_path)) == (8 << 30) - (256 << 20)
    group = tmp_path / "sys/fs/cgroup/a"
    (group / "memory.max").write_text(f"{2 << 30}\n")
    (group / "memory.current").write_text(f"{1 << 30}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {128 << 20}\n")
    assert free_memory(str(tmp_path)) == (1 << 30) + (128 << 20) - (256 << 20)
    (group / "memory.current").write_text(f"{2 << 30}\n")
    assert free_memory(str(tmp_path)) == 0


@pytest.mark.parametrize("userland", ["i386-bookworm", "bullseye"])
def test_a_process_in_a_root_of_its_own(userland: str) -> None:
    """Programs of 32 bits and of an older C library, in their roots."""
    recipe, land = PROGRAMS["anchors"], userlands.get(userland)
    executable = cores.build("anchors", "dynamic", userland)
    land.directory("cores").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=land.directory("cores")) as folder:
        work = Path(folder)
        settings = {**recipe.env, "DMODS_MODE": "", "DMODS_END": "pause"}
        with cores.started(cores.Launch(land, executable, settings, work)) as process:
            cores.wait_until_told(process, work)
            pid = cores._pid(process, work)
            core = work / "core.1603"
            cores.gcore(pid, core, land.root)
            for words in (("findleaks",), ("walk", "buf"), ("stacks",)):
                root = ("--sysroot", land.sysroot or "/")
                of_core = answers.typed(words[0], core, *words[1:], *root)
                of_process = answers.typed(words[0], "-p", pid, *words[1:], *root)
                assert of_core["tables"] or words == ("findleaks",)
                assert of_process["tables"] == of_core["tables"]
                assert of_process["totals"] == of_core["totals"]


def test_growth_of_a_live_process(program: Path) -> None:
    with running(program) as server:
        done = answers.dmods("growth", "-p", server.pid, "--every", "0.01", "--times", "3", "--by", "size", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["totals"]["cores"] == 3
        assert found["totals"]["same_process"] is True
        assert found["totals"]["growth_bytes"] == 0
        assert done.stderr.count("; the next in 0.01 s") == 2
        assert server.asked(3) == 4


def test_redis_under_its_benchmark_loses_no_request(tmp_path: Path) -> None:
    with software.redis(tmp_path) as process:
        benchmark = subprocess.Popen(
            ["redis-benchmark", "-s", str(tmp_path / "redis.sock"), "-n", "20000", "-q", "-t", "set,get,lpush"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        pictures = 0
        while benchmark.poll() is None:
            done = answers.dmods("findleaks", "-p", process.pid, "--json")
            assert done.returncode == 0, done.stderr
            pictures += 1
        said = benchmark.communicate()[0]
        assert benchmark.returncode == 0, said
        assert pictures
        assert said.count("requests per second") == 3
        assert "rror" not in said
        assert status(process.pid)["TracerPid"] == "0"
