"""`owners` where many variables lead to the same memory: how many, which, and what each has if they share it evenly."""

from __future__ import annotations

from pathlib import Path

from fixtures import answers
from tests.corekit import compile_c, kernel_core

_ROOTS, _NODES = 100, 3000


def test_many_roots_have_names_and_a_number(tmp_path: Path) -> None:
    """A hundred variables lead to a list, each by a block of its own. Two others lead to another list."""
    source = tmp_path / "many.c"
    variables = "\n".join(f"struct node *root_{number:03};" for number in range(_ROOTS))
    starts = "\n".join(f"\troot_{number:03} = add(all, 1);" for number in range(_ROOTS))
    source.write_text(_MANY.replace("VARIABLES", variables).replace("STARTS", starts))
    core = kernel_core(compile_c(source, tmp_path / "many"), tmp_path)
    rows = answers.typed("owners", core, "--top", "200")["tables"][0]["rows"]
    shared = [row for row in rows if row["how"] == "shared"]
    assert [row["owner"] for row in shared] == [
        f"many roots: many`root_000, many`root_001, many`root_002 and {_ROOTS - 3} more",
        "many`left, many`right",
    ]
    many, two = shared
    size = two["bytes"] // (_NODES // 2)
    assert (many["count"], many["bytes"], many["root_count"]) == (_NODES, _NODES * size, _ROOTS)
    assert many["each_bytes"] == many["bytes"] // _ROOTS
    assert (two["count"], two["root_count"], two["each_bytes"]) == (_NODES // 2, 2, two["bytes"] // 2)
    assert {root["name"] for root in many["roots"]} <= {f"many`root_{number:03}" for number in range(_ROOTS)}
    alone = {row["owner"]: row for row in rows if row["how"] == "alone"}
    for number in range(_ROOTS):
        row = alone[f"many`root_{number:03}"]
        assert (row["count"], row["each_bytes"]) == (1, None)


def test_the_column_is_there_where_memory_is_shared(tmp_path: Path) -> None:
    source = tmp_path / "many.c"
    source.write_text(_MANY.replace("VARIABLES", "").replace("STARTS", "\tright = 0;"))
    core = kernel_core(compile_c(source, tmp_path / "many"), tmp_path)
    assert " EACH " not in answers.dmods("owners", core).stdout
    source.write_text(_MANY.replace("VARIABLES", "").replace("STARTS", ""))
    core.unlink()
    core = kernel_core(compile_c(source, tmp_path / "many"), tmp_path)
    assert " EACH " in answers.dmods("owners", core).stdout


_MANY = f"""
#include <stdlib.h>
struct node {{ struct node *next; long number; }};
struct node *left, *right;
VARIABLES
static struct node *add(struct node *end, long count)
{{
	for (long i = 0; i < count; i++) {{
		struct node *made = malloc(sizeof *made);
		*made = (struct node){{end, i}};
		end = made;
	}}
	return end;
}}
int main(void)
{{
	struct node *all = add(0, {_NODES}), *two = add(0, {_NODES} / 2);
	left = right = two;
STARTS
	two = all = 0;
	abort();
}}
"""
