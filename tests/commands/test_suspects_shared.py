"""`suspects` on memory that many variables lead to, in stripped programs as servers are (shares.c)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, cores
from tests.corekit import HERE, compile_c, kernel_core


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "commands" / "shares.c", tmp_path_factory.mktemp("shares") / "shares", "-g0", "-s")


# Cores that other tests of the quick run make anyway.
_OTHERS = [("vectors", ""), ("packed", ""), ("sizes", ""), ("freed", ""), ("frames", "raise")]
_LEAST, _FIFTH, _ALL = 1 << 20, 0.2, "1000000"


def asked(program: Path, where: Path, how: str, *words: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the answer, and what the program said of itself."""
    core = kernel_core(program, where, how, output=where / "said")
    lines = (line.split() for line in (where / "said").read_text().splitlines())
    target = CoreFile(str(core))
    answer = answers.answer(target, "suspects", *words)
    held = answers.by_name(answers.answer(target, "owners"))["owners"]
    # `owners` and `suspects` agree about the largest line.
    assert answers.by_name(answer)["suspects"][0]["bytes"] == held[0]["bytes"]
    return answer, {name: int(value) for name, value in lines}


def test_what_many_variables_share_has_its_number_its_size_and_texts(program: Path, tmp_path: Path) -> None:
    answer, truth = asked(program, tmp_path, "statements")
    (row,) = answers.by_name(answer)["suspects"]
    assert (row["count"], row["bytes"]) == (truth["blocks"], truth["made"])
    assert re.match(r"(`0x[0-9a-f]+` \(shares\), ){2}`0x[0-9a-f]+` \(shares\) and 19 more share ", row["sentence"])
    texts = r": 9,000 blocks of 2,056 bytes \(one holds 'stmt_(\d+)', another 'stmt_(\d+)'\)\.$"
    found = re.search(texts, row["sentence"])
    assert found, row["sentence"]
    assert found[1] != found[2]
    assert (row["kind"], row["confidence"]) == ("held", "possible")


def test_marks_of_the_linker_are_no_variables(tmp_path: Path) -> None:
    """Servers that load modules export all symbols: data_start and _edata with them, which have no size."""
    exported = compile_c(HERE / "commands" / "shares.c", tmp_path / "shares", "-g0", "-s", "-rdynamic")
    answer, _truth = asked(exported, tmp_path, "statements")
    (row,) = answers.by_name(answer)["suspects"]
    assert re.match(r"(`0x[0-9a-f]+` \(shares\), ){2}`0x[0-9a-f]+` \(shares\) and 19 more share ", row["sentence"])


def test_equal_blocks_of_a_megabyte_are_a_suspect(program: Path, tmp_path: Path) -> None:
    """No block leads to another. An item's key does not begin at a word."""
    answer, truth = asked(program, tmp_path, "slabs", "--least", "1M")
    (row,) = answers.by_name(answer)["suspects"]
    assert (row["count"], row["bytes"]) == (truth["blocks"], truth["made"])
    pool = r": 40 blocks of 1,05[0-9,]+ bytes; each has 2,19\d places of 480 bytes, about 87,[0-9]+ in all"
    found = re.search(rf"{pool} \(one holds '(.*?)', another '(.*?)'\)", row["sentence"])
    assert found, row["sentence"]
    assert all(re.fullmatch(r"session:\d+:\d+", text) for text in found.groups())


def test_a_magic_number_is_no_sample(program: Path, tmp_path: Path) -> None:
    answer, _truth = asked(program, tmp_path, "magic", "--least", "1M")
    (row,) = answers.by_name(answer)["suspects"]
    assert re.search(r"\(one holds 'client-\d+\.example', another 'client-\d+\.example'\)", row["sentence"])


def nothing_is_true(core: Path) -> bool:
    """Return whether `suspects` says that nothing has a fifth of the heap. Then `owners` has to agree."""
    target = CoreFile(str(core))
    said = any("nothing has 20%" in note for note in answers.answer(target, "suspects")["notes"])
    by_root = answers.by_name(answers.answer(target, "owners", "--top", _ALL))["owners"]
    by_size = answers.by_name(answers.answer(target, "owners", "--by", "size", "--top", _ALL))["kinds"]
    in_use = sum(row["bytes"] for row in by_root if row["how"] in ("alone", "shared", "leaked"))
    held = [row["bytes"] for row in by_root if row["how"] in ("alone", "shared", "leaked")]
    held += [row["bytes"] for row in by_size if row["how"] == "live"]
    assert not said or max(held) < max(_LEAST, _FIFTH * in_use)
    return said


@pytest.mark.parametrize("how", ["statements", "slabs", "magic", "spread"])
def test_nothing_is_said_only_where_the_sums_prove_it(program: Path, tmp_path: Path, how: str) -> None:
    assert nothing_is_true(kernel_core(program, tmp_path, how)) == (how == "spread")


@pytest.mark.parametrize(("name", "mode"), _OTHERS)
def test_nothing_is_true_of_other_programs(name: str, mode: str) -> None:
    nothing_is_true(cores.take(name, mode=mode).core)
