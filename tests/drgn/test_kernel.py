"""`drgn -c vmcore NAME`: one line for each thing that is missing. tests/kernel checks the commands' answers."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from drgnext.kernel.dump import debuginfo
from drgnext.kernel.dump.dumpfile import dump_file_notes
from fixtures import answers
from fixtures.kernel import Guest
from fixtures.packing import FORMS
from tests import quick
from tests.drgn.conftest import ROOT, Drgn, drgn_environment, own
from tests.drgn.prompt import Prompt
from tests.kernel.carried import without_types


@pytest.fixture
def dump(guest: Guest, place: Path) -> Path:
    """Return the guest's dump in ``place``, with nothing beside it."""
    (place / "vmcore").symlink_to(guest.vmcore)
    return place / "vmcore"


def notes(stderr: str) -> list[str]:
    return [line.partition("note: ")[2] for line in own(stderr)]


def test_as_typed(drgn: Drgn, dump: Path, guest: Guest) -> None:
    done = drgn("-c", "vmcore", "-s", guest.vmlinux, "panicinfo", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["command"], found["target"]) == ("panicinfo", str(guest.vmcore.resolve()))
    assert any("modules have no debugging information" in note for note in found["notes"])


def test_the_launcher_itself_takes_the_name_first(drgn: Drgn, guest: Guest) -> None:
    launcher = ROOT / "drgnext" / "launcher.py"
    done = drgn("-c", guest.vmcore, "-s", guest.vmlinux, launcher, where=ROOT)
    assert done.returncode == 2
    assert "no command 'launcher.py'" in done.stderr
    done = drgn("-c", guest.vmcore, "-s", guest.vmlinux, launcher, "walk", "zone", where=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0x")


def test_mdbs_language_on_a_kernel(place: Path, tmp_path: Path, dump: Path, guest: Guest) -> None:
    """`echo ::walk task | mdb -k`, and a pipe: the stack of each task is that of `findstack ADDR`."""
    (dump.parent / "vmlinux").symlink_to(guest.vmlinux)

    def dmods(*words: object, stdin: str = "") -> str:
        done = answers.dmods(*words, cwd=place, env=drgn_environment(tmp_path), stdin=None, input=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tasks = dmods("walk", dump, "task").split()
    assert len(tasks) > 20
    assert dmods("mdb", dump, stdin="::walk task\n").split() == tasks
    stacks = dmods("mdb", dump, "::walk task | ::findstack")
    assert stacks == dmods("findstack", dump, "-", stdin="\n".join(tasks))
    assert dmods("findstack", dump, tasks[0]) in stacks
    assert dmods("mdb", dump, f"{tasks[-1]}::findstack") == dmods("findstack", dump, tasks[-1])
    assert stacks.count("stack pointer for thread") == len(tasks)


def test_from_the_shell_without_launchers(place: Path, tmp_path: Path, dump: Path, guest: Guest) -> None:
    """`dmods NAME vmcore`: debugging information lies in the folder. Where both sides have a name, the dump decides."""
    (dump.parent / "vmlinux").symlink_to(guest.vmlinux)
    found = []
    for words in (["panicinfo", dump], ["walk", dump, "zone"], ["memstat", "-v", dump]):
        done = answers.dmods(*words, "--json", cwd=place, env=drgn_environment(tmp_path))
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)["command"])
    assert found == ["panicinfo", "walk", "memstat"]
    done = answers.dmods("owners", dump)
    assert done.returncode == 1
    assert "is a kernel dump" in done.stderr


@pytest.mark.parametrize("form", quick.only(["zstd"], FORMS, "each form is tested with cores"))
def test_a_compressed_dump(place: Path, tmp_path: Path, guest: Guest, form: str) -> None:
    """vmlinux lies beside the compressed dump. `dmods NAME` and `dmods drgn -c` answer as on the plain dump."""
    (place / "dumps").mkdir()
    dump = place / "dumps" / "vmcore.packed"
    dump.write_bytes(FORMS[form](guest.vmcore.read_bytes()))
    (dump.parent / f"vmlinux-{guest.release}").symlink_to(guest.vmlinux)
    environment = {**drgn_environment(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    wanted = answers.dmods("memstat", guest.vmcore, "-s", guest.vmlinux, cwd=place, env=environment).stdout
    for words in (["memstat", dump], ["drgn", "-c", dump, "memstat"], ["drgn", dump, "memstat"]):
        done = answers.dmods(*words, cwd=place, env=environment)
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr
        assert "drgn reads its plain form" in done.stderr


@pytest.mark.quick("True")
@pytest.mark.parametrize("here", [True, False])
def test_vmlinux_beside_the_dump(drgn: Drgn, place: Path, tmp_path: Path, guest: Guest, here: bool) -> None:
    folder = place if here else tmp_path / "dumps"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(guest.vmcore, folder / "vmcore")
    (folder / f"vmlinux-{guest.release}").symlink_to(guest.vmlinux)
    for disabled in ("", "dmods"):  # the plugin says so before drgn complains; else the launcher does
        done = drgn("-c", folder / "vmcore", "panicinfo", DRGN_DISABLE_PLUGINS=disabled)
        assert done.returncode == 0, done.stderr
        assert ("missing debugging symbols for kernel" in done.stderr) == bool(disabled)


def test_modules_beside_the_dump(drgn: Drgn, dump: Path, guest: Guest) -> None:
    (dump.parent / "vmlinux").symlink_to(guest.vmlinux)
    before = notes(drgn("-c", "vmcore", "panicinfo").stderr)
    (dump.parent / guest.module.name).symlink_to(guest.module)
    after = notes(drgn("-c", "vmcore", "panicinfo").stderr)
    lacking = [
        int(note.split()[0]) for found in (before, after) for note in found if "modules have no debugging" in note
    ]
    assert len(lacking) == 2
    assert lacking[0] == lacking[1] + 1


def test_what_was_unpacked_beside_the_dump(drgn: Drgn, dump: Path, guest: Guest) -> None:
    """The files lie as `dpkg -x linux-image-...-dbg.deb .` leaves them."""
    unpacked = dump.parent / "usr" / "lib" / "debug" / "boot"
    unpacked.mkdir(parents=True)
    (unpacked / f"vmlinux-{guest.release}").symlink_to(guest.vmlinux)
    assert drgn("-c", "vmcore", "panicinfo").returncode == 0


@pytest.mark.usefixtures("dump")
def test_no_vmlinux(drgn: Drgn, guest: Guest) -> None:
    done = drgn("-c", "vmcore", "panicinfo")
    assert done.returncode == 0
    (note,) = (note for note in notes(done.stderr) if "there is no vmlinux" in note)
    assert len(f"note: {note}") <= 80
    said = drgn("-c", "vmcore", "doctor")
    assert f"linux-image-{guest.release}-dbg" in " ".join(said.stdout.split())


def test_no_vmlinux_and_no_types(drgn: Drgn, guest: Guest, place: Path) -> None:
    copy = without_types(guest.vmcore, place)
    done = drgn("-c", "vmcore", "panicinfo")
    assert done.returncode == 1
    what, how = own(done.stderr)
    assert f"no debugging information for this kernel, {guest.release}" in what
    assert f"linux-image-{guest.release}-dbg" in how
    assert f"drgn -c {copy.resolve()} -s VMLINUX" in how


def test_the_wrong_vmlinux(drgn: Drgn, dump: Path, guest: Guest) -> None:
    """The vmlinux beside the dump is of another build."""
    shutil.copy("/bin/true", dump.parent / "vmlinux")
    done = drgn("-c", "vmcore", "panicinfo")
    assert done.returncode == 0
    assert "there is no vmlinux" in done.stderr


@pytest.mark.parametrize("name", ["owners", "maps"])
@pytest.mark.usefixtures("dump")
def test_a_command_for_processes(drgn: Drgn, guest: Guest, name: str) -> None:
    done = drgn("-c", "vmcore", name)
    assert done.returncode == 1
    what, how = own(done.stderr)
    assert what == f"dmods: {name} is for processes, and {guest.vmcore.resolve()} is a kernel"
    assert "drgn -c core" in how


def test_truncated(drgn: Drgn, guest: Guest, place: Path) -> None:
    """Where the needed memory is still there, the command answers."""
    cut = place / "vmcore"
    shutil.copyfile(guest.vmcore, cut)
    memory, end = extent(guest.vmcore)
    with cut.open("r+b") as file:
        file.truncate(end - (1 << 20))
    done = drgn("-c", cut, "-s", guest.vmlinux, "panicinfo")
    assert done.returncode == 0, done.stderr
    lost = 1 << 20
    assert [note for note in notes(done.stderr) if "truncated" in note] == [
        f"the dump is truncated: {lost} of {memory} bytes of memory are missing, and from the answers too"
    ]
    with cut.open("r+b") as file:
        file.truncate(1 << 20)
    done = drgn("-c", cut, "-s", guest.vmlinux, "panicinfo")
    assert done.returncode == 1
    what, _how = own(done.stderr)
    assert "it is truncated" in what


def extent(vmcore: Path) -> tuple[int, int]:
    """Return the bytes of all PT_LOADs and where the last one ends in the file, by the gABI."""
    with vmcore.open("rb") as file:
        head = file.read(64)
        (at,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(count)]
    loads = [(offset, filesz) for kind, _flags, offset, _vaddr, _paddr, filesz in table if kind == 1]
    return sum(filesz for _offset, filesz in loads), max(offset + filesz for offset, filesz in loads)


def test_at_the_prompt(dump: Path, guest: Guest, place: Path, tmp_path: Path, drgn: Drgn) -> None:
    expected = drgn("-c", "vmcore", "-s", guest.vmlinux, "panicinfo").stdout.splitlines()
    with Prompt(place, tmp_path, "-q", "-c", "vmcore", "-s", guest.vmlinux) as prompt:
        assert prompt.ask("%panicinfo 2>/dev/null") == expected
        said = prompt.ask("%owners")
        assert len(said) == 2
        assert "is for processes" in said[0]
        # A variable comes before a kernel's symbol (jiffies), and before a number in hex (b).
        prompt.ask('t = b = jiffies = prog["init_task"].address_of_(); n = 1')
        stack = prompt.ask('%findstack prog["init_task"] 2>/dev/null')
        assert "(swapper/0, pid 0)" in stack[0]
        for word in ("t", "b", "jiffies"):
            assert prompt.ask(f"%findstack {word} 2>/dev/null") == stack
        assert "(init, pid 1)" in prompt.ask("%findstack n 2>/dev/null")[0]
        where = prompt.ask("%whatis init_task 2>/dev/null")
        assert where[0].endswith(" is init_task")
        for word in ("jiffies", 'prog["init_task"]'):
            assert prompt.ask(f"%whatis {word} 2>/dev/null") == where


@pytest.mark.parametrize(
    ("release", "advice"),
    [
        ("6.1.0-50-cloud-amd64", "apt-get install linux-image-6.1.0-50-cloud-amd64-dbg"),
        ("6.12.95+deb13-arm64", "apt-get install linux-image-6.12.95+deb13-arm64-dbg"),
        ("6.8.0-45-generic", "linux-image-6.8.0-45-generic-dbgsym"),
        ("5.14.0-427.el9.x86_64", "dnf debuginfo-install kernel-5.14.0-427.el9.x86_64"),
        ("6.11.4-301.fc41.aarch64", "dnf debuginfo-install kernel-6.11.4-301.fc41.aarch64"),
        ("6.4.0-150600.23-default", "kernel-default-debuginfo"),
        ("6.9.0-mine", "kernel 6.9.0-mine"),
        ("", "kernel"),
    ],
)
def test_advice(release: str, advice: str) -> None:
    assert advice in debuginfo.package(release)


# -- the file's own headers, made up by the format's documentation ----------------------------------------------------


def kdump(level: int = 0, status: int = 0, pages: int = 100, split: int = 0) -> bytes:
    """Return a dump in makedumpfile's format (IMPLEMENTATION, "KDUMP file format"): ``pages`` pages of 100 bytes."""
    block = 4096
    head = bytearray(block)
    head[:12] = b"KDUMP   " + struct.pack("<i", 6)
    struct.pack_into("<IiiI", head, 424, status, block, 1, 2)
    sub = bytearray(block)
    struct.pack_into("<Qii", sub, 0, 0, level, split)
    bits = (1 << pages) - 1
    bitmap = bits.to_bytes(block, "little")
    data = block * 5 + 24 * pages
    table = b"".join(struct.pack("<QIIQ", data + 100 * number, 100, 0, 0) for number in range(pages))
    return (
        bytes(head + sub)
        + bitmap
        + bitmap
        + bytes(block) * 0
        + table.ljust(24 * pages + block, b"\0")
        + bytes(100 * pages)
    )


def test_a_kdumps_notes(tmp_path: Path) -> None:
    def of(data: bytes) -> list[str]:
        (tmp_path / "k").write_bytes(data)
        return dump_file_notes(str(tmp_path / "k"))

    assert of(kdump()) == []
    assert of(kdump(level=1)) == []
    (note,) = of(kdump(level=31))
    assert note.startswith("the dump was filtered (makedumpfile -d 31): without page cache,")
    assert "free pages" in note
    whole = kdump()
    assert of(whole[: 4096 * 5 + 24 * 100 + 100 * 99]) == [
        "the dump is truncated: pages are missing, and from the answers too"
    ]
    for size in (0, 7, 8, 100, 440, 5000, 4096 * 4, 4096 * 4 + 100):
        assert isinstance(of(whole[:size]), list)
    assert "truncated" in of(kdump(status=8))[0]
    (note,) = of(kdump(split=1)[: 4096 * 4 + 50])  # a part may end early
    assert note.startswith("the dump is one part of several (makedumpfile --split)")
