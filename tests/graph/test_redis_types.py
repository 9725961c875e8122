"""The types of a redis-server with debug information, compared with the functions that allocated the blocks.

The auditor records the callers. In Redis most functions allocate objects of one type, so the caller is a witness of
its own: it knows nothing of pointers, fields and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.types.typegraph import find_typegraph
from fixtures import answers, audited, cores, software, with_debug_info
from tests.graph.makers import compared

_BYTES = ("char[]", "unsigned char[]", "struct sdshdr8", "struct sdshdr16", "struct sdshdr32")
_TABLES = ("dictEntry *[]", "struct dictEntry *[]")
#: The functions of Redis 7.0 that allocate, and the types of what they make. Their names are those of its sources.
MAKES: Mapping[str, tuple[str, ...]] = {
    "createObject": ("struct redisObject", "robj"),
    "createRawStringObject": _BYTES,
    "sdsResize": _BYTES,
    "_sdsMakeRoomFor": _BYTES,
    "setTypeAdd": _BYTES,
    "zsetAdd": _BYTES,
    "zsetConvert": (*_BYTES, "struct zset", "zset"),
    "dbAdd": _BYTES,
    "lpInsert": _BYTES,
    "zslCreateNode": ("struct zskiplistNode",),
    "zslCreate": ("struct zskiplist",),
    "dictAddRaw": ("struct dictEntry",),
    "_dictExpand": _TABLES,
    "dictCreate": ("struct dict",),
    "hdr_init": ("long[]", "struct hdr_histogram"),
    "aeCreateEventLoop": ("struct aeFileEvent[]", "struct aeFiredEvent[]", "struct aeEventLoop"),
    "aeApiCreate": ("struct aeApiState", "struct epoll_event[]"),
    "quicklistCreate": ("struct quicklist",),
    "quicklistCreateNode": ("struct quicklistNode",),
    "listCreate": ("struct list",),
    "listAddNodeHead": ("struct listNode",),
    "listAddNodeTail": ("struct listNode",),
    "raxNew": ("struct rax",),
    "raxNewNode": ("struct raxNode",),
    "raxAddChild": ("struct raxNode",),
    "raxCompressNode": ("struct raxNode",),
    "initServer": ("struct redisDb[]", *_BYTES, *("struct user", "user")),
    "zstrdup": ("char[]",),
    "aeCreateTimeEvent": ("struct aeTimeEvent",),
    "registerConfigValue": _BYTES,
    "populateCommandTable": _BYTES,
}
_ALLOCATORS = ("zmalloc", "zcalloc", "zrealloc", "ztry", "malloc", "calloc", "realloc", "_sdsnew", "sdsnew", "sdstry")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("redis")
    argv = [str(with_debug_info.redis()), *software.REDIS]
    with software.running(argv, where, audited.environment("audit=12")) as process:
        software.fill_redis(where / "redis.sock", 3)
        cores.gcore(process.pid, where / "core.1603")
    return where / "core.1603"


@pytest.mark.thorough("it downloads and builds a server")
def test_the_types_of_a_server_are_those_that_its_functions_make(core: Path) -> None:
    target = CoreFile(str(core))
    graph = find_typegraph(target)
    assert graph is not None
    found = compared(target, graph, MAKES, _ALLOCATORS)
    assert +found.wrong == Counter()
    assert found.typed > 0.8 * found.recorded
    # The witnesses know nearly all of it.
    assert found.judged > 0.95 * found.typed
    rows = {row["type"]: row for row in answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]}
    # Each entry of a sorted set is in its list, and in its table.
    assert rows["struct zskiplistNode"]["count"] >= 12_000
    # The tables keep the entries alive, and these the keys and values.
    assert rows["dictEntry *[]"]["retained_bytes"] > rows["struct dictEntry"]["retained_bytes"]
    assert rows["struct dictEntry"]["retained_bytes"] > 3 * rows["struct dictEntry"]["bytes"]
    owners = answers.answer(target, "owners", "--by", "type", "--top", "1000")["tables"][0]["rows"]
    by_type = {row["type"]: row["bytes"] for row in owners}
    assert by_type["struct zskiplistNode"] == rows["struct zskiplistNode"]["bytes"]
