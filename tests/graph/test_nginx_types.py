"""The types of an nginx with debug information, whose objects are in pools.

The client knows how many connections and requests there are. The functions that allocated the blocks are witnesses of
their types.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.types.typegraph import find_typegraph
from fixtures import answers, audited, cores, software, with_debug_info
from tests.graph.makers import compared

_EACH = 200  # connections that wait, requests that are not complete, answers that nobody reads
_CONFIGURATION = """
daemon off; master_process off; error_log stderr; pid nginx.pid;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server { listen unix:work.sock; root .; }
}
"""
#: The functions of nginx that allocate blocks of one type. A pool holds many objects: no single one names it.
MAKES = {
    "ngx_event_process_init": ("struct ngx_connection_s[]", "struct ngx_event_s[]"),
    "ngx_epoll_init": ("struct epoll_event[]",),
    "ngx_create_pool": ("struct ngx_pool_s",),
    "ngx_palloc_block": ("struct ngx_pool_s",),
    "ngx_palloc_large": ("unsigned char[]", "ngx_table_elt_t[]", "ngx_hash_elt_t *[]", "void *[]"),
}
_ALLOCATORS = ("ngx_alloc", "ngx_calloc", "ngx_memalign", "malloc", "calloc", "posix_memalign", "memalign")


@contextmanager
def _asked(where: Path) -> Iterator[None]:
    """Have a request or a connection of each kind _EACH times, while the context lasts."""
    requests = (
        (b"GET /small.txt HTTP/1.1\r\nHost: x\r\nUser-Agent: client\r\n\r\n", True),
        (b"GET /small.txt HTTP/1.1\r\nHost: x\r\nCookie: name=value\r\nX-Part: ", False),
        (b"GET /large.txt HTTP/1.1\r\nHost: x\r\nUser-Agent: client\r\n\r\n", True),
    )
    with ExitStack() as connections:
        for _n in range(_EACH):
            for text, is_answered in requests:
                client = connections.enter_context(software.connected(where))
                client.sendall(text)
                if is_answered:
                    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        # The server has read all requests before this one.
        with software.connected(where) as last:
            last.sendall(b"GET /small.txt HTTP/1.0\r\n\r\n")
            while last.recv(1 << 16, socket.MSG_WAITALL):
                pass
        yield


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nginx")
    (where / "nginx.conf").write_text(_CONFIGURATION)
    (where / "small.txt").write_text("small\n")
    (where / "large.txt").write_text("large\n" * 1_000_000)
    argv = [str(with_debug_info.nginx()), "-p", str(where), "-c", str(where / "nginx.conf")]
    with software.running(argv, where, audited.environment("audit=12")) as process, _asked(where / "work.sock"):
        cores.gcore(process.pid, where / "core.1603")
    return where / "core.1603"


@pytest.mark.thorough("it downloads and builds a server")
def test_the_types_of_a_server_with_pools(core: Path) -> None:
    target = CoreFile(str(core))
    graph = find_typegraph(target)
    assert graph is not None
    found = compared(target, graph, MAKES, _ALLOCATORS)
    assert +found.wrong == Counter()
    totals = answers.answer(target, "typegraph")["totals"]
    assert totals["typed_bytes"] > 0.8 * totals["bytes"]
    rows = answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]
    counts = {row["type"]: row["count"] for row in rows}
    # A connection that waits for its next request has none. Only a `void *` leads to its own object.
    assert counts["struct ngx_http_request_s in a pool"] == 2 * _EACH
    assert 2 * _EACH <= counts["ngx_http_connection_t in a pool"] <= 3 * _EACH
