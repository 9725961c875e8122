"""A program that was upgraded since: its copy by build-id, and debuginfod where the user asked for it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.modules import debuginfod
from fixtures import answers
from tests.corekit import kernel_core

SOURCE = "#include <stdlib.h>\nint version = %d; int main(void) { malloc(100); abort(); }\n"


@dataclass
class Upgraded:
    """A core, the program that died, the one that is at its path now, and the build-ids that readelf says."""

    core: Path
    old: Path
    new: Path
    was: str
    now: str


def build_id(path: Path) -> str:
    said = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", said)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    folder = tmp_path_factory.mktemp("upgraded")
    new, old = folder / "shop", folder / "old"
    (folder / "run").mkdir()

    def build(version: int) -> None:
        words = ["gcc", "-g", "-x", "c", "-", "-o", new, "-Wl,--build-id=sha1"]
        subprocess.run(words, input=SOURCE % version, text=True, check=True)

    build(1)
    core = kernel_core(new, folder / "run")
    new.rename(old)
    build(2)
    return Upgraded(core, old, new, build_id(old), build_id(new))


@pytest.fixture
def upgraded(built: Upgraded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    """Return the core, for a user who has no copies yet, and has asked no server."""
    for name in ("DEBUGINFOD_URLS", "DEBUGINFOD_CACHE_PATH", debuginfod.ASKED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    debuginfod._download.cache_clear()
    debuginfod.problems.clear()
    return built


def program(made: Upgraded, *sysroot: str) -> tuple[str, str]:
    """Return the program's file and the notes."""
    core = CoreFile(str(made.core), None, *sysroot)
    found = core.program
    assert found is not None
    return found.file or "", "\n".join(core.notes)


def test_without_a_copy_the_build_ids_are_said(upgraded: Upgraded) -> None:
    file, notes = program(upgraded)
    assert file == ""
    assert f"{upgraded.new} has build-id {upgraded.now}, and the process had {upgraded.was}" in notes
    said = answers.dmods("doctor", upgraded.core).stdout
    assert re.search(rf"^program:.*has build-id {upgraded.now}, and the process had {upgraded.was}", said, re.MULTILINE)


def test_the_copy_below_usr_lib_debug(upgraded: Upgraded, tmp_path: Path) -> None:
    root = tmp_path / "root"
    place = root / "usr/lib/debug/.build-id" / upgraded.was[:2] / upgraded.was[2:]
    for path in (place, root / "opt/old", root / str(upgraded.new).lstrip("/")):
        path.parent.mkdir(parents=True, exist_ok=True)
    (root / str(upgraded.new).lstrip("/")).write_bytes(upgraded.new.read_bytes())
    # Debug information alone has the same build-id, and is no copy of the program.
    subprocess.run(["objcopy", "--only-keep-debug", upgraded.old, place], check=True)
    assert program(upgraded, str(root))[0] == ""
    place.unlink()
    (root / "opt/old").write_bytes(upgraded.old.read_bytes())
    place.symlink_to("/opt/old")  # as Fedora's packages link it; absolute in the root
    file, notes = program(upgraded, str(root))
    assert file == str(root / "opt/old")
    assert f"has build-id {upgraded.now}, and the process had {upgraded.was}: its copy by build-id is used, " in notes
    symbol = CoreFile(str(upgraded.core), None, str(root)).lookup("version")
    assert symbol is not None
    assert CoreFile(str(upgraded.core), None, str(root)).read(symbol.address, 4) == b"\1\0\0\0"


def test_the_copy_of_a_debuginfod_client(upgraded: Upgraded, tmp_path: Path) -> None:
    place = tmp_path / "cache/debuginfod_client" / upgraded.was / "executable"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")  # a server had none
    assert program(upgraded)[0] == ""
    place.write_bytes(upgraded.new.read_bytes())  # another program
    assert program(upgraded)[0] == ""
    place.write_bytes(upgraded.old.read_bytes())
    file, notes = program(upgraded)
    assert file == str(place)
    assert f"its copy by build-id is used, {place}" in notes
    given = CoreFile(str(upgraded.core), str(upgraded.new))  # what the user names is used
    assert given.program is not None
    assert given.program.file == str(upgraded.new)


@dataclass
class Server:
    """A debuginfod on the loopback interface: what it has by path, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    promised: int = 0  # bytes more than there are
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            data = state.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) + state.promised))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield state
        http.shutdown()
        thread.join()


def asking(core: Path, server: Server, *options: str, command: str = "stacks", **settings: str) -> tuple[str, str]:
    """Return what the command says, and its stderr."""
    env = {**os.environ, "DEBUGINFOD_URLS": f"ima:ignore {server.url}/", "PATH": "/nonexistent", **settings}
    done = answers.dmods(command, core, *options, env=env)
    return done.stdout, done.stderr


def test_a_server_is_asked_only_where_the_user_said_so(upgraded: Upgraded, server: Server, tmp_path: Path) -> None:
    path = f"/buildid/{upgraded.was}/executable"
    server.files[path] = upgraded.old.read_bytes()
    assert not re.search(r"\bmain\b", asking(upgraded.core, server)[0])
    assert server.asked == []
    refused = asking(upgraded.core, server, "--debuginfod", DEBUGINFOD_URLS="")
    assert "--debuginfod asks the servers of DEBUGINFOD_URLS, and it is not set" in refused[1]
    assert server.asked == []
    said, notes = asking(upgraded.core, server, "--debuginfod")
    assert re.search(r"\bmain\b", said)
    place = tmp_path / "cache/debuginfod_client" / upgraded.was / "executable"
    assert place.read_bytes() == upgraded.old.read_bytes()
    assert f"its copy by build-id is used, {place}" in notes
    assert server.asked.count(path) == 1
    asked = len(server.asked)
    assert asking(upgraded.core, server)[0] == said  # what was downloaded is a copy like any other
    assert len(server.asked) == asked


@dataclass
class Stripped:
    """The core of a stripped program, its build-id as readelf says it, and its debug information."""

    core: Path
    identity: str
    debug: bytes


@pytest.fixture(scope="module")
def stripped(built: Upgraded, tmp_path_factory: pytest.TempPathFactory) -> Stripped:
    folder = tmp_path_factory.mktemp("stripped")
    (folder / "run").mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", built.old, folder / "debug"], check=True)
    subprocess.run(["strip", "-o", folder / "shop", built.old], check=True)
    return Stripped(kernel_core(folder / "shop", folder / "run"), built.was, (folder / "debug").read_bytes())


MAIN = re.compile(r"\bmain\b.*\W2\b")  # main is in the second line of SOURCE


def test_debug_information_from_a_server(
    stripped: Stripped, upgraded: Upgraded, server: Server, tmp_path: Path
) -> None:
    """Names and lines of a stripped program come from a server, once, and only where the user said so."""
    path = f"/buildid/{stripped.identity}/debuginfo"
    place = tmp_path / "cache/debuginfod_client" / stripped.identity / "debuginfo"
    server.files[path] = stripped.debug
    assert not MAIN.search(asking(stripped.core, server, command="findstack")[0])
    assert server.asked == []
    said, _notes = asking(stripped.core, server, "--debuginfod", command="findstack")
    assert MAIN.search(said), said
    assert place.read_bytes() == stripped.debug
    assert server.asked.count(path) == 1
    asked = len(server.asked)
    assert asking(stripped.core, server, command="findstack")[0] == said  # what was downloaded is used by all
    assert len(server.asked) == asked


def test_debug_information_that_is_not_taken(
    stripped: Stripped, upgraded: Upgraded, server: Server, tmp_path: Path
) -> None:
    path = f"/buildid/{stripped.identity}/debuginfo"
    server.files[path] = upgraded.new.read_bytes()  # of another build
    for why in ("what it gave has another build-id", "404"):
        said, notes = asking(stripped.core, server, "--debuginfod", command="findstack")
        assert not MAIN.search(said)
        assert f"debuginfod has no debuginfo of build-id {stripped.identity}: " in notes
        assert why in notes
        server.files.clear()
    assert not [each for each in (tmp_path / "cache").rglob("*") if each.is_file()]


def fetch(made: Upgraded, server: Server, monkeypatch: pytest.MonkeyPatch, **settings: str) -> str:
    """Return why nothing came."""
    monkeypatch.setenv("PATH", "/nonexistent")
    for name, value in {"DEBUGINFOD_URLS": server.url, debuginfod.ASKED: "1", **settings}.items():
        monkeypatch.setenv(name, value)
    debuginfod._download.cache_clear()
    debuginfod.problems.clear()
    assert debuginfod.debuginfod_file(made.was, "executable") is None
    assert debuginfod.debuginfod_file(made.was, "executable") is None  # it is asked once
    assert len(debuginfod.problems) == 1
    return debuginfod.problems[0]


def test_answers_that_are_not_taken(
    upgraded: Upgraded, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/buildid/{upgraded.was}/executable"
    assert "404" in fetch(upgraded, server, monkeypatch)
    server.files[path] = upgraded.new.read_bytes()
    assert "what it gave has another build-id" in fetch(upgraded, server, monkeypatch)
    server.files[path] = upgraded.old.read_bytes()
    assert "at most 1000 are taken" in fetch(upgraded, server, monkeypatch, DEBUGINFOD_MAXSIZE="1000")
    monkeypatch.delenv("DEBUGINFOD_MAXSIZE")
    server.promised = 100
    assert re.search(r"ended after|IncompleteRead", fetch(upgraded, server, monkeypatch))
    server.promised = 0
    assert "names no server" in fetch(upgraded, server, monkeypatch, DEBUGINFOD_URLS=f"file://{upgraded.old}")
    assert not [each for each in (tmp_path / "cache").rglob("*") if each.is_file()]
    assert server.asked == [path] * 4


def test_the_client_is_asked_where_it_is_installed(
    upgraded: Upgraded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tmp_path / "bin/debuginfod-find"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\n[ "$1 $2" = "executable {upgraded.was}" ] && echo {upgraded.old}\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert program(upgraded)[0] == ""
    monkeypatch.setenv(debuginfod.ASKED, "1")
    assert program(upgraded)[0] == str(upgraded.old)
