"""The kernel's own types against bpftool's listing of them, and dumps that end before their symbols or types do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from fixtures import answers, kernel
from fixtures.kernel import bpftool
from tests.kernel.carried import btf_copy
from tests.kernel.test_carried import PREPARE, RELEASES, in_drgn


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.thorough("it fetches bpftool")
def test_structures_are_those_that_bpftool_lists(release: str, tmp_path: Path) -> None:
    """A thousand of them: size, and name, offset and bits of each member."""
    guest = kernel.guest(release, "null")
    listed = bpftool.structures(btf_copy(guest, tmp_path))
    names = sorted(listed)[:: max(1, len(listed) // 1000)][:1000]
    script = f"""
def shown(name):
    type_ = prog.type("struct " + name)
    return [type_.size, [[m.name or "", m.bit_offset, m.bit_field_size or 0] for m in type_.members]]
print(json.dumps({{name: shown(name) for name in {names!r}}}))
"""
    file = tmp_path / "script.py"
    file.write_text(PREPARE + script)
    own = in_drgn(guest, file)
    # A bit-field without a name is padding, which debug information leaves out.
    expected = {
        name: [listed[name].size, [list(one) for one in listed[name].members if one[0] or not one[2]]] for name in names
    }
    assert len(names) == 1000
    assert {name: own[name] for name in names if own[name] != expected[name]} == {}


@pytest.mark.parametrize("share", [10, 25, 40, 55, 70, 85, 99])
@pytest.mark.thorough("each copies a dump")
def test_a_cut_dump_answers_or_names_the_proof(share: int, tmp_path: Path) -> None:
    guest = kernel.guest("6.1", "null")
    dump = tmp_path / "vmcore"
    subprocess.run(["cp", "--sparse=always", guest.vmcore, dump], check=True)
    os.truncate(dump, guest.vmcore.stat().st_size * share // 100)
    done = answers.dmods("memstat", dump, "--json")
    assert "Traceback" not in done.stderr
    answer = json.loads(done.stdout)
    if done.returncode:
        reason = answer["error"]["what"]
        assert "its own is of no use: " in reason or "the dump " in reason
    else:
        notes = "; ".join(answer["notes"])
        assert "symbols and types are the kernel's own" in notes
        assert "the dump is truncated" in notes
