"""Truncated dumps of a kernel: commands say what is missing. `scripts/fuzz --truncate N --kernel` cuts more of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fixtures import kernel
from tests import quick
from tests.fuzz import vmcores


@pytest.mark.quick("kdump")
@pytest.mark.parametrize("form", vmcores.FORMATS)
def test_a_dump_cut_in_its_last_quarter(form: str, tmp_path: Path) -> None:
    guest = kernel.guest(*vmcores.GUEST)
    copy = tmp_path / form
    shutil.copyfile(getattr(guest, form), copy)
    os.truncate(copy, copy.stat().st_size * 7 // 8)
    said, wrong = vmcores.judge(copy)
    assert not wrong
    # Every command line ended, and none of them claims that the dump is whole.
    assert {line.partition(":")[0] for line in said} >= {"memstat", "panicinfo", "stacks", "trapframe"}
    words = ("truncated", "cut off", "may be missing", "notes")
    # Whole or not, such a dump alone has no answer.
    unanswered = ("did not record who allocated", "is not loaded in this kernel", "growth compares two dumps")
    assert all(any(word in line for word in (*words, *unanswered)) for line in said), said


@pytest.mark.parametrize("form", quick.only(["kdump"], vmcores.FORMATS))
def test_cuts_near_the_headers(form: str, tmp_path: Path) -> None:
    ended = list(vmcores.truncated(form, 2, "headers", tmp_path))
    assert len(ended) == 2
    assert all(one.said and not one.wrong for one in ended), ended
