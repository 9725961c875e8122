"""The mirrors of audit/format.h agree with it, and a change of the header is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit import mirrors


def test_the_mirrors_agree_with_the_header() -> None:
    assert mirrors.differing(mirrors.read()) == []


@pytest.mark.parametrize(
    ("before", "after", "both"),
    [
        ("uint64_t pthread;", "uint64_t pthread_self;", False),  # another name
        ("uint32_t status_stack, status_thread;", "uint64_t status_stack;", False),  # another size
        ("int64_t tls_offset;", "uint64_t tls_offset;", False),  # another sign
        ("DMODS_AUDIT_RANGE_BOOTSTRAP = 6", "DMODS_AUDIT_RANGE_BOOTSTRAP = 7", True),
        ("DMODS_AUDIT_NODE_EXACT_BIT = 49", "DMODS_AUDIT_NODE_EXACT_BIT = 50", True),
        ("DMODS-AUDIT-ROOT", "DMODS-AUDIT-ROOF", False),
        ("uint64_t tls_size;", "uint64_t tls_size, more;", False),  # appended
    ],
)
def test_a_change_is_noticed(tmp_path: Path, before: str, after: str, both: bool) -> None:
    text = mirrors.HEADER.read_text()
    assert text.count(before) == 1
    changed = tmp_path / "format.h"
    changed.write_text(text.replace(before, after))
    expected = {mirrors.PYTHON, mirrors.RUST} if both else {mirrors.PYTHON}
    assert set(mirrors.differing(mirrors.read(changed))) == expected


def test_a_change_of_what_only_the_engine_reads_is_noticed(tmp_path: Path) -> None:
    changed = tmp_path / "format.h"
    text = mirrors.HEADER.read_text()
    assert text.count("uint64_t address, size;") == 1
    changed.write_text(text.replace("uint64_t address, size;", "uint64_t size, address;"))
    assert mirrors.differing(mirrors.read(changed)) == [mirrors.RUST]


def test_padding_is_refused(tmp_path: Path) -> None:
    changed = tmp_path / "format.h"
    changed.write_text(mirrors.HEADER.read_text().replace("uint32_t entry_size, reserved;", "uint32_t entry_size;", 1))
    with pytest.raises(ValueError, match="dmods_audit_table has padding at offset 20"):
        mirrors.read(changed)
