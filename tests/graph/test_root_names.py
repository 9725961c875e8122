"""The names of members: what the standard reserves for the implementation ([lex.name]) is cut off."""

from __future__ import annotations

import pytest

from dmods.graph.roots.plain_names import outer_part


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("srv.by_token._M_t._M_impl._M_header._M_parent", "srv.by_token"),
        ("srv.by_token.__tree_.__begin_node_", "srv.by_token"),
        ("server.db[0].dict", "server.db[0].dict"),
        ("plain._x", "plain._x"),
        ("own_._lower", "own_._lower"),
        ("_IO_2_1_stdout_.file._IO_buf_base", "_IO_2_1_stdout_"),
        ("__exit_funcs[0]", "__exit_funcs"),
        ("head", "head"),
    ],
)
def test_inner_members_are_cut_off(place: str, part: str) -> None:
    assert outer_part(place) == part
