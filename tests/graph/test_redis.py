"""The owners of a loaded server's heap: Debian's redis-server, with jemalloc."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import find_owners
from fixtures import answers, cores, software

_KEYS = 25_000


def _fill(where: Path) -> dict[str, int]:
    """Set the keys. Return the numbers of MEMORY STATS."""
    with software.connected(where) as client:
        for start in range(0, _KEYS, 500):
            keys = range(start, start + 500)
            client.sendall(b"".join(_request("SET", f"key:{key}", "v" * 200) for key in keys))
            said = b""
            while said.count(b"+OK\r\n") < 500:
                said += client.recv(1 << 16)
        return _memory_stats(client)


def _memory_stats(client: socket.socket) -> dict[str, int]:
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
        said = _fill(tmp_path / "redis.sock")
        cores.gcore(process.pid, tmp_path / "core.1603")
    target = CoreFile(str(tmp_path / "core.1603"))
    (first, *others) = answers.answer(target, "suspects", "--least", "1M")["tables"][0]["rows"]
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
    # The last values may also stand in a stale word.
    assert kinds[0]["size"] == 224
    assert _KEYS - 2 <= kinds[0]["count"] <= _KEYS
    owners = find_owners(target)
    assert owners.missing == 0


@pytest.mark.thorough("it loads a server")
@pytest.mark.parametrize("env", [{}, {"LD_PRELOAD": "libc.so.6"}], ids=["jemalloc", "glibc"])
def test_a_server_at_work_with_values_of_all_types(tmp_path: Path, env: Mapping[str, str]) -> None:
    """Strings, lists, hashes, sets, sorted sets and streams; some keys have expired, some were deleted."""
    software.link_redis(tmp_path)
    argv = [str(tmp_path / "redis-server"), *software.REDIS]
    with software.running(argv, tmp_path, dict(env)) as process:
        software.fill_redis(tmp_path / "redis.sock", 3)
        with software.connected(tmp_path / "redis.sock") as client:
            said = _memory_stats(client)
        cores.gcore(process.pid, tmp_path / "core.1603")
    target = CoreFile(str(tmp_path / "core.1603"))
    (first,) = answers.answer(target, "suspects", "--least", "1M")["tables"][0]["rows"]
    assert re.match(r"`server\+0x[0-9a-f]+` \(redis-[a-z-]+\)", first["sentence"]), first
    # What the server counts as data, and its tables of keys. It counts a little more: what clients and scripts need.
    counted = said["total.allocated"] - said["overhead.total"] + said["overhead.hashtable.main"]
    assert 0.9 * counted < first["bytes"] < 1.02 * counted
    kept = answers.answer(target, "retained", first["address"], "--top", "1000")
    assert kept["totals"] == {"bytes": first["bytes"], "count": first["count"]}
    assert sum(row["bytes"] for row in kept["tables"][1]["rows"]) == first["bytes"]
    assert find_owners(target).missing == 0


@pytest.mark.thorough("it loads a server")
@pytest.mark.parametrize(
    ("how", "malloc"), [("HSET", ""), ("SADD", ""), ("ZADD", ""), ("HSET", "libc.so.6"), ("SADD", "libc.so.6")]
)
def test_the_one_huge_key_has_its_name(tmp_path: Path, how: str, malloc: str) -> None:
    """One key has 40,000 members, and 5,000 keys are small."""
    words = {"HSET": ("member:%d", "v" * 60), "SADD": ("member:%060d",), "ZADD": ("1", "member:%060d")}[how]
    huge = [(how, "huge:one", *(word % n if "%" in word else word for word in words)) for n in range(40_000)]
    software.link_redis(tmp_path)
    argv = [str(tmp_path / "redis-server"), *software.REDIS]
    with software.running(argv, tmp_path, {"LD_PRELOAD": malloc} if malloc else {}) as process:
        with software.connected(tmp_path / "redis.sock") as client:
            _send(client, [("SET", f"key:{key}", "v" * 50) for key in range(5000)])
            _send(client, huge)
        cores.gcore(process.pid, tmp_path / "core.1603")
    target = CoreFile(str(tmp_path / "core.1603"))
    first = answers.answer(target, "suspects", "--least", "1M")["tables"][0]["rows"][0]
    found = re.search(r", \d+% of it under the entry 'huge:one' at (0x[0-9a-f]+)", first["sentence"])
    assert found is not None, first["sentence"]
    # The members hang on that entry.
    assert int(answers.answer(target, "retained", found[1])["totals"]["count"]) > 40_000


def _send(client: socket.socket, commands: list[tuple[str, ...]]) -> None:
    """Send the commands, and wait until each is answered."""
    for start in range(0, len(commands), 500):
        batch = commands[start : start + 500]
        client.sendall(b"".join(_request(*words) for words in batch))
        said = b""
        while said.count(b"\r\n") < len(batch):
            said += client.recv(1 << 16)
