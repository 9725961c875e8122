"""Expressions that are compiled late, against those that re compiles at once."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmods.base.regex import regex

ROOT = Path(__file__).parents[2]


def test_it_finds_what_re_finds() -> None:
    for text, flags in ((r"(?P<name>[a-z]+)=(\d+)", 0), (r"(?P<name>[A-Z]+)=(\d+)", re.IGNORECASE)):
        late, early = regex(text, flags), re.compile(text, flags)
        said = "a=1, bc=22;DEF=333"
        assert [each.groupdict() for each in late.finditer(said)] == [each.groupdict() for each in early.finditer(said)]
        assert late.sub(r"\2", said) == early.sub(r"\2", said)
        assert bool(late.fullmatch("x=1")) == bool(early.fullmatch("x=1"))
        assert (late.pattern, late.flags, late.groups) == (early.pattern, early.flags, early.groups)
    assert regex(rb"\d+").findall(b"1 22") == [b"1", b"22"]
    late = regex("a")
    assert copy.copy(late).match("a")
    late.search("b")
    assert copy.deepcopy(late).match("a")


def test_a_wrong_one_is_an_error_when_it_is_used() -> None:
    late = regex("(")
    with pytest.raises(re.error):
        late.match("")


def test_every_expression_of_a_module_compiles() -> None:
    """An import no longer does that."""
    code = """import importlib, sys
from pathlib import Path
from dmods.base import regex
count = 0
for path in sys.argv[1:]:
    module = importlib.import_module(".".join(Path(path).with_suffix("").parts))
    for each in vars(module).values():
        for one in each if isinstance(each, (list, tuple)) else [each]:
            for late in one if isinstance(one, (list, tuple)) else [one]:
                if isinstance(late, regex._Pattern):
                    late.pattern
                    count += 1
print(count)"""
    found = [path for folder in ("dmods", "drgnext") for path in (ROOT / folder).rglob("*.py")]
    users = [str(path.relative_to(ROOT)) for path in found if "dmods.base.regex import" in path.read_text()]
    argv = [sys.executable, "-c", code, *users]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
