"""The owners of a loaded server's heap: Debian's redis-server, with jemalloc."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners import find_owners
from fixtures import answers, cores, software

_KEYS = 25_000


def _fill(where: Path) -> dict[str, int]:
    """Set the keys. Return the numbers of MEMORY STATS."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(where))
        for start in range(0, _KEYS, 500):
            keys = range(start, start + 500)
            client.sendall(b"".join(_request("SET", f"key:{key}", "v" * 200) for key in keys))
            said = b""
            while said.count(b"+OK\r\n") < 500:
                said += client.recv(1 << 16)
        client.sendall(_request("MEMORY", "STATS"))
        said = b""
        while b"fragmentation.bytes\r\n:" not in said.rpartition(b"rss-overhead")[2]:
            said += client.recv(1 << 16)
    return {name: int(value) for name, value in re.findall(r"([a-z.-]+)\r\n:(\d+)\r\n", said.decode())}


def _request(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


@pytest.mark.thorough("it loads a server")
def test_the_array_of_databases_is_the_first_suspect(tmp_path: Path) -> None:
    software.link_redis(tmp_path)
    argv = [str(tmp_path / "redis-server"), *software.REDIS]
    with software.running(argv, tmp_path, {}) as process:
        while not (tmp_path / "redis.sock").exists():
            time.sleep(0.05)
        said = _fill(tmp_path / "redis.sock")
        cores.gcore(process.pid, tmp_path / "core.1603")
    target = CoreFile(str(tmp_path / "core.1603"))
    (first, *others) = answers.answer(target, "suspects")["tables"][0]["rows"]
    assert not others
    assert re.match(r"`server\+0x[0-9a-f]+` \(redis-[a-z-]+\)", first["sentence"]), first
    # 16 databases of 80 bytes.
    block = answers.answer(target, "whatis", first["address"])["tables"][1]["rows"][0]
    assert block["size"] == 1280
    # MEMORY STATS says what the server asked for; jemalloc rounds a value of 219 bytes up to 224, and so on.
    asked = said["keys.bytes-per-key"] * _KEYS if "keys.bytes-per-key" in said else said["dataset.bytes"]
    assert 0.9 * asked < first["bytes"] < 1.15 * asked
    assert first["percent"] > 75
    kinds = answers.answer(target, "retained", first["address"])["tables"][1]["rows"]
    assert (kinds[0]["count"], kinds[0]["size"]) == (_KEYS, 224) or kinds[0]["count"] >= _KEYS - 1
    owners = find_owners(target)
    assert owners.missing == 0
