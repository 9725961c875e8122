"""A process in a container: its files are in another root, in another mount namespace, or in an image."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dmods.modules.localfiles import LocalFiles
from dmods.modules.rooted import below, resolved
from fixtures import _cache, answers
from fixtures.cores import check_core_pattern
from fixtures.limits import HANG
from tests.corekit import compile_c
from tests.imagekit import PACKERS, docker_save, oci_layout, tar, tree

SOME = (("walk", "buf"), ("stacks",))  # they need the C library's file, and the symbols of the program
ALL = (*SOME, ("findleaks", "-d"), ("heapcheck",), ("owners",), ("panicinfo",), ("maps",))
OF_THE_DEAD = (("panicinfo",), ("maps",))  # the reason of the death is not there while it lives
SAME_IN_THE_CORE = (("walk", "buf"), ("findleaks", "-d"), ("owners",))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with the program, its C library, and links such as distributions have."""
    made = tmp_path_factory.mktemp("container") / "root"
    for name in ("usr/bin", "usr/lib", "out", "proc"):
        (made / name).mkdir(parents=True)
    program = compile_c(Path(__file__).parent / "shop.c", made / "usr/bin/shop")
    (made / "lib").symlink_to("/usr/lib")  # absolute: it must be read relative to the root
    (made / "lib64").symlink_to("usr/lib")
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path is not None:
            place = made / "usr" / path.lstrip("/").removeprefix("usr/").replace("lib64/", "lib/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(path), place)
    return made


@dataclass
class Container:
    """A live process, stopped, and the folder where its core will be."""

    process: subprocess.Popen[str]
    out: Path

    def die(self) -> Path:
        os.kill(self.process.pid, signal.SIGABRT)
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.wait(HANG)
        return next(path for path in self.out.iterdir() if path.name.startswith("core"))


def _in_a_namespace() -> list[str]:
    """Return the beginning of a command line that runs a script as root of a mount namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [_cache.tool("unshare", "util-linux"), "--mount", *user, "sh", "-ec"]


def need_namespaces(folder: Path) -> None:
    """Skip the test where this machine, itself a container, refuses what a container is made with."""
    folder.mkdir()
    parts = f"mkdir {folder}/a {folder}/b && mount --bind {folder}/a {folder}/b && chroot / true"
    tried = f"mount -t tmpfs none {folder} && {parts}"
    done = subprocess.run([*_in_a_namespace(), tried], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine refuses a mount namespace or chroot: {done.stderr.strip()}")


@contextmanager
def container(root: Path, tmp_path: Path) -> Iterator[Container]:
    """Run the program in a mount namespace, in a copy of the root that nobody else sees."""
    check_core_pattern()
    mount, out = tmp_path / "mount", tmp_path / "out"
    mount.mkdir()
    out.mkdir()
    script = f"""
        mount -t tmpfs none {mount} && cp -a {root}/. {mount} && mount --bind {out} {mount}/out
        ulimit -c unlimited; exec chroot {mount} /usr/bin/shop
    """
    process = subprocess.Popen([*_in_a_namespace(), script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert not (mount / "usr").exists()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield Container(process, out)
    finally:
        process.kill()
        process.communicate()


def all_of(commands: Sequence[Sequence[str]], *target: object) -> dict[Sequence[str], object]:
    said = {}
    for words in commands:
        answer = answers.typed(words[0], *target, *words[1:])
        assert not [note for note in answer["notes"] if "not on this machine" in note or "not used" in note]
        said[words] = (answer["tables"], answer["totals"])
    return said


@pytest.mark.parametrize("commands", [SOME, pytest.param(ALL, marks=pytest.mark.thorough("some commands are tried"))])
def test_a_live_process_its_core_and_its_image_say_the_same(
    commands: tuple[tuple[str, ...], ...], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_namespaces(tmp_path / "tried")
    while_it_lives = [words for words in commands if words not in OF_THE_DEAD]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    entries = tree(root)
    first, second = entries[: len(entries) // 2], entries[len(entries) // 2 :]
    image = docker_save(tmp_path / "image.tar", [PACKERS["gzip"](tar(first)), PACKERS["zstd"](tar(second))])
    layout = oci_layout(tmp_path / "layout", [tar(entries)])
    with container(root, tmp_path) as run:
        live = all_of(while_it_lives, "-p", run.process.pid)
        assert all_of(while_it_lives, "-p", run.process.pid, "--sysroot", f"/proc/{run.process.pid}/root") == live
        core = run.die()
    by_folder = all_of(commands, core, "--sysroot", root)
    for words in set(SAME_IN_THE_CORE) & set(live):
        assert live[words] == by_folder[words], words
    assert "main" in str(live[("stacks",)])
    said = answers.printed("findleaks", core, "--sysroot", root)
    assert re.search(r"^malloc-1000 +7 ", said, re.MULTILINE)
    assert re.search(r"^malloc-3000 +2 ", said, re.MULTILINE)
    for other in (image, image, layout):  # the second time, what was unpacked is used
        assert all_of(commands, core, "--sysroot", other) == by_folder
    assert not (tmp_path / "cache/dmods/cores").exists() or not list((tmp_path / "cache/dmods/cores").iterdir())


def test_links_stay_in_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy("/bin/true", root / "usr/bin/true")
    for name, to in {"bin": "/usr/bin", "up": "../../../../usr/bin", "out": "/bin/false", "loop": "loop"}.items():
        (root / name).symlink_to(to)
    assert below(str(root), "/bin/true") == below(str(root), "/up/true") == str(root / "usr/bin/true")
    assert below(str(root), "/loop/x") is None
    descriptor = os.open(root, os.O_PATH)
    try:
        theirs = LocalFiles(f"/proc/self/fd/{descriptor}")
        for name in ("/bin/true", "/up/true", f"{root}/bin/true"):
            found = theirs.find(name)
            assert found is not None
            assert found.size == (root / "usr/bin/true").stat().st_size
        assert [theirs.find(name) for name in ("/out", "/loop", "/../../bin/false", "/usr/bin")] == [None] * 4
    finally:
        os.close(descriptor)
    assert LocalFiles(str(root)).find("/out") is not None  # a folder of the user's own


@pytest.mark.parametrize(
    ("path", "real"),
    [("/a/x", "/d/x"), ("a/./x/", "/d/x"), ("/e/../../a", "/d"), ("/../../etc", "/etc"), ("/one", None), ("/", "/")],
)
def test_paths_without_links(path: str, real: str) -> None:
    links = {"/a": "/b/c", "/b/c": "../../../../d", "/one": "two", "/two": "/one", "/e": ".."}
    assert resolved(path, links.get) == real
