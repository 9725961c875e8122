"""Every stack agrees with libgcc's, also where stacks are hard to walk and where code is loaded and unloaded.

This runs a part of scripts/stacks-oracle, which compares a million stacks of each program.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures import _cache
from tests import quick
from tests.audit import oracle
from tests.audit.auditor import compiled
from tests.audit.oracle import checked, checking

#: How often a thread does each hard thing: a thousand stacks.
TURNS = 60 if os.environ.get(_cache.QUICK) else 200


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checking(tmp_path_factory.mktemp("check") / "check.so")


@pytest.mark.parametrize("words", quick.only(["audit"], ["audit", "audit=4", "audit=50"]))
def test_hard_stacks(tmp_path: Path, library: Path, words: str) -> None:
    program = compiled("twisted.cc", tmp_path / "twisted", f"-DTURNS={TURNS}")
    plugins = [compiled("plugin.c", tmp_path / f"{n}.so", "-shared", "-fPIC", f"-DROOM={n}") for n in (40, 200, 72)]
    found = checked(tmp_path, library, words, [program, *plugins])
    assert found.different == 0, found.said
    assert found.stacks > 1000 * TURNS


def test_without_dl_find_object(tmp_path: Path) -> None:
    old = checking(tmp_path / "old.so", "-DDMODS_AUDIT_OLD_GLIBC")
    found = checked(tmp_path, old, "audit", [compiled("twisted.cc", tmp_path / "twisted", f"-DTURNS={TURNS}")])
    assert found.different == 0, found.said
    assert found.stacks > 1000 * TURNS


@pytest.mark.quick("redis")
@pytest.mark.parametrize("name", ["redis", "python", "gdb"])
def test_real_programs(tmp_path: Path, library: Path, name: str) -> None:
    assert oracle.compare(name, tmp_path, library, "audit", 20_000).stacks >= 20_000
