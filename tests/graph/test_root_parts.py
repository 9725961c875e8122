"""`retained` divides a root by its words. Containers' own allocators count what each holds, and so does a C program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core
from tests.quick import only


def parts(core: Path, where: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answers.by_name(answers.typed("retained", core, where))["parts"]
    return found


@pytest.mark.parametrize("stripped", only([False], [False, True], "the program with debug information is"))
def test_each_container_of_a_structure_has_what_it_counted(tmp_path: Path, stripped: bool) -> None:
    """Seven containers are members of one local. To the byte; without debug information the members are offsets."""
    program = tmp_path / "containers"
    flags = ["-s"] if stripped else ["-g"]
    subprocess.run(["g++", "-O1", *flags, str(HERE / "containers.cc"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path, "local")
    lines = (line.split() for line in (tmp_path / "truth").read_text().splitlines())
    truth = {name: (int(size), int(count)) for name, size, count in lines}
    # A global deque, which is empty, counts with the same allocator.
    empty = {row["owner"]: row for row in answers.typed("owners", core)["tables"][0]["rows"]}.get("containers`queue")
    truth["queue"] = (truth["queue"][0] - 592, truth["queue"][1] - 2)
    assert empty is None or (empty["bytes"], empty["count"]) == (592, 2)
    local = answers.typed("owners", core)["tables"][0]["rows"][0]
    found = parts(core, local["roots"][0]["address"])
    assert all(row["how"] == "alone" for row in found)
    if stripped:
        assert sorted((row["bytes"], row["count"]) for row in found) == sorted(truth.values())
        assert all(row["part"].startswith("+0x") for row in found)
    else:
        assert {row["part"]: (row["bytes"], row["count"]) for row in found} == {
            f"own.{name}": sums for name, sums in truth.items()
        }


def test_what_two_members_lead_to_has_a_line(tmp_path: Path) -> None:
    """Two lists of 100 and of 200 nodes end in a third of 50."""
    source = tmp_path / "fork.c"
    source.write_text(_FORK)
    core = kernel_core(compile_c(source, tmp_path / "fork"), tmp_path)
    found = parts(core, "server")
    size = found[0]["bytes"] // 200
    assert [(row["part"], row["how"], row["count"], row["bytes"]) for row in found] == [
        ("server.second", "alone", 200, 200 * size),
        ("server.first", "alone", 100, 100 * size),
        ("server.first, server.second", "together", 50, 50 * size),
    ]
    # The answers of other commands are as before.
    target = CoreFile(str(core))
    before = answers.answer(target, "owners")["tables"]
    answers.answer(target, "retained", "server")
    assert answers.answer(target, "owners")["tables"] == before


def test_a_variable_with_one_member_is_not_divided(tmp_path: Path) -> None:
    source = tmp_path / "fork.c"
    source.write_text(_FORK.replace("add(&server.second, 200, end)", "add(&server.first, 200, server.first)"))
    core = kernel_core(compile_c(source, tmp_path / "fork"), tmp_path)
    assert "parts" not in answers.by_name(answers.typed("retained", core, "server"))
    held = answers.typed("owners", core)["tables"][0]["rows"][0]
    assert (held["owner"], held["count"]) == ("fork`server.first", 350)


_FORK = """
#include <stdlib.h>
struct node { struct node *next; long number; };
static struct { long count; struct node *first, *second; } server;
static void add(struct node **head, long count, struct node *end)
{
	*head = end;
	for (long i = 0; i < count; i++) {
		struct node *made = malloc(sizeof *made);
		made->next = *head;
		made->number = i;
		*head = made;
	}
}
int main(void)
{
	struct node *end;
	add(&end, 50, 0);
	add(&server.first, 100, end);
	add(&server.second, 200, end);
	end = 0;
	abort();
}
"""
