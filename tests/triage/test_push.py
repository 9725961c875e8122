"""Profiles of dumps go to a server, and dumps that are compressed are looked at. The server is our own."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from dmods.errors import UsageError, UserError
from dmods.triage.fleet import packed, push
from dmods.triage.fleet.content import Origin, dumps
from dmods.triage.fleet.store import Store
from fixtures import answers, audited
from fixtures.limits import HANG
from fixtures.packing import FORMS

ORIGIN = Origin("web1", 1700000000.0, "1.2")


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Yield the address of a server that answers everything with the status, and what it was sent."""
    taken: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/other")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{one.server_port}/ingest", taken
        finally:
            one.shutdown()


def test_a_profile_arrives_with_its_labels() -> None:
    with server(200) as (url, taken):
        pusher = push.Pusher(url)
        pusher.push(b"profile", 'red}is,"', "ab12", ORIGIN)
    assert (pusher.sent, pusher.failed) == (1, 0)
    ((path, body),) = taken
    asked = parse_qs(urlsplit(path).query)
    assert asked["name"] == ["red_is__{host=web1,build_id=ab12,version=1.2}"]
    assert (asked["from"], asked["format"], body) == (["1700000000"], ["pprof"], b"profile")


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_server_that_refuses_is_left_alone(status: int) -> None:
    with server(status) as (url, taken):
        pusher = push.Pusher(url)
        for _ in range(5):
            pusher.push(b"profile", None, None, ORIGIN)
    assert (pusher.sent, pusher.failed, len(taken)) == (0, 5, 3)
    assert pusher.reason is not None
    assert str(status) in pusher.reason


def test_no_server_and_a_slow_one_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "SECONDS", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        pusher = push.Pusher(address)
        pusher.push(b"profile", None, None, ORIGIN)  # nobody listens
        assert pusher.reason is not None
        assert "cannot be reached" in pusher.reason
        taken.listen()
        began = time.monotonic()
        for _ in range(5):
            pusher.push(b"profile", None, None, ORIGIN)  # nobody answers
    assert (pusher.failed, pusher.gave_up) == (6, True)
    assert time.monotonic() - began < HANG
    with pytest.raises(UsageError):
        push.Pusher("file:///etc/passwd")


@pytest.mark.quick("gzip", "zstd")
@pytest.mark.parametrize("form", FORMS)
def test_a_plain_copy_is_the_dump(form: str, tmp_path: Path) -> None:
    data = b"\x7fELF\2\1\1" + bytes(9) + b"\4\0" + os.urandom(9 << 20) + bytes(3 << 20) + b"end"
    path = tmp_path / f"core.{form}"
    path.write_bytes(FORMS[form](data))
    assert list(dumps([str(tmp_path)])) == [(str(tmp_path), str(path))]
    with packed.plain(str(path), form, packed.Bounds(1 << 30, HANG)) as copy:
        assert Path(copy).read_bytes() == data
        assert Path(copy).stat().st_blocks * 512 < 10 << 20
    assert not Path(copy).exists()
    with packed.plain(str(path), form, packed.Bounds(100_000, HANG)) as copy:
        assert Path(copy).read_bytes() == data[:100_000]
    path.write_bytes(path.read_bytes()[: 6 << 20])  # it is a truncated core then
    with packed.plain(str(path), form, packed.Bounds(1 << 30, HANG)) as copy:
        assert data.startswith(Path(copy).read_bytes())
    path.write_bytes(path.read_bytes()[:8])
    with pytest.raises(UserError, match="cannot be unpacked"), packed.plain(str(path), form, packed.Bounds(1 << 30, 9)):
        pass


@pytest.mark.thorough("it runs dmods on packed cores")
def test_packed_dumps_have_reports_and_their_profiles_arrive(tmp_path: Path) -> None:
    core = audited.take("profiled").core
    folder = tmp_path / "web1"
    folder.mkdir()
    (folder / "core.gz").write_bytes(gzip.compress(core.read_bytes(), 1))
    with server(200) as (url, taken):
        done = answers.dmods("triage", tmp_path, "--db", tmp_path / "db", "--push", url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"1 heap profiles were sent to {url}" in done.stderr
    (one,) = Store(str(tmp_path / "db")).dumps()
    assert (one.reason, one.host, Path(one.path).name) == (None, "web1", "core.gz")
    ((path, body),) = taken
    assert parse_qs(urlsplit(path).query)["name"][0].startswith("profiled{host=web1,build_id=")
    (tmp_path / "x.pb.gz").write_bytes(body)
    top = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=B", str(tmp_path / "x.pb.gz")],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert "scene" in top.stdout
    again = answers.dmods("triage", tmp_path, "--db", tmp_path / "db", "--push", url, "--redact", cwd=tmp_path)
    assert "exclude each other" in again.stderr
