"""Owners where words of an earlier use of the memory point into every structure: tests/graph/stale.cc.

The containers' own allocators count what each holds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers, libcxx
from tests.corekit import HERE, compile_c, dumped_in, kernel_core

_WORDS = "1000"


def dumped(where: Path, *flags: str, strip: bool = False, preload: str = "") -> Path:
    program = where / "stale"
    subprocess.run(["g++", "-g", *flags, str(HERE / "graph" / "stale.cc"), "-o", str(program)], check=True)
    if strip:
        subprocess.run(["strip", str(program)], check=True)
    return kernel_core(program, where, _WORDS, _WORDS, env={"LD_PRELOAD": preload} if preload else None)


def truth(where: Path) -> dict[str, tuple[int, int]]:
    lines = (line.split() for line in (where / "truth").read_text().splitlines())
    return {name: (int(size), int(count)) for name, size, count in lines}


def held(core: Path, *words: str) -> dict[str, tuple[int, int]]:
    """Return what each root holds alone, by the variable's name."""
    rows = answers.typed("owners", core, "--top", "1000", *words)["tables"][0]["rows"]
    return {row["owner"].partition("`")[2]: (row["bytes"], row["count"]) for row in rows if row["how"] == "alone"}


def test_words_that_are_left_over_own_nothing(tmp_path: Path) -> None:
    """Each container has what it counted, to the byte, though 2,000 such words point into them."""
    core = dumped(tmp_path, "-O2")
    told = truth(tmp_path)
    found = held(core)
    assert {name: found.get(name) for name in told} == told
    # Before, one line had more than half of the heap.
    every = held(core, "--all-edges")
    assert sum(every.get(name, (0, 0))[0] for name in told) < sum(size for size, _count in told.values()) / 2
    (note,) = (note for note in answers.typed("owners", core, "-v")["notes"] if "left over" in note)
    assert int(note.split()[0]) > 900


@pytest.mark.quick("libjemalloc.so.2")
@pytest.mark.parametrize("library", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"])
def test_the_end_of_a_block_owns_nothing(tmp_path: Path, library: str) -> None:
    """Without headers, the end of a piece of a deque is the beginning of the next block, whoever has that.

    A deque gets the memory in which another one had its pointers, and does not use all of it.
    """
    core = dumped(tmp_path, "-O2", preload=library)
    told = truth(tmp_path)
    found = held(core)
    assert {name: found.get(name) for name in told} == told


@pytest.mark.thorough("it downloads clang and libc++")
@pytest.mark.parametrize(
    "library",
    ["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"],
    ids=lambda each: each or "glibc",
)
def test_the_containers_of_libcxx(tmp_path: Path, library: str) -> None:
    """A piece of a deque has 4 KiB and few pointers, which are left over. Nodes and texts have the memory of arrays.

    glibc: some of a list's nodes have a chunk of the size of another list's nodes. jemalloc: all blocks of one size may
    be texts, a few of them with old words behind their end.
    """
    program = tmp_path / "stale"
    source = str(HERE / "graph" / "stale.cc")
    subprocess.run([*libcxx.compiler(), "-g", "-O1", source, "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path, _WORDS, _WORDS, env={"LD_PRELOAD": library} if library else None)
    told = truth(tmp_path)
    found = held(core)
    assert {name: found.get(name) for name in told} == told


@pytest.mark.parametrize("userland", ["i386-bookworm"])
def test_a_program_of_32_bits(userland: str) -> None:
    with dumped_in(userland, HERE / "graph" / "stale.cc", ["g++", "-g", "-O2", "-DCLEAN"], _WORDS, _WORDS) as made:
        told = truth(made[0].parent)
        found = held(made[0], "--sysroot", str(made[1]))
    assert {name: found.get(name) for name in told} == told


@pytest.mark.quick("-member", "libjemalloc.so.2-global")
@pytest.mark.parametrize("mode", ["global", "member"])
@pytest.mark.parametrize("library", ["", "libjemalloc.so.2"])
def test_the_room_of_a_vector_owns_nothing(tmp_path: Path, library: str, mode: str) -> None:
    """Behind its elements, a vector has pointers to all of a list: words of the array that had the memory before."""
    rows, told = _owners_of_room(tmp_path, mode, library)
    found = {row["owner"]: (row["bytes"], row["count"]) for row in rows if row["how"] == "alone"}
    assert {name: found.get(f"room`{name}") for name in told} == told
    assert not [row for row in rows if row["how"] == "shared"]


def test_what_a_parser_reads_is_an_array(tmp_path: Path) -> None:
    """A local has the begin of an array, the place that it has reached, and the end. All of the array is in use."""
    rows, told = _owners_of_room(tmp_path, "parser")
    found = {row["owner"]: (row["bytes"], row["count"]) for row in rows if row["how"] == "alone"}
    (shared,) = (row for row in rows if row["how"] == "shared")
    assert (shared["bytes"], shared["count"]) == told.pop("shared")
    assert {name: found.get(f"room`{name}") for name in told} == told


_Sums = dict[str, tuple[int, int]]


def _owners_of_room(where: Path, mode: str, library: str = "") -> tuple[list[dict[str, Any]], _Sums]:
    subprocess.run(["g++", "-O1", "-g", str(HERE / "graph" / "room.cc"), "-o", str(where / "room")], check=True)
    core = kernel_core(where / "room", where, mode, env={"LD_PRELOAD": library} if library else None)
    return answers.typed("owners", core)["tables"][0]["rows"], truth(where)


def test_each_variable_of_a_stripped_program_is_a_root(tmp_path: Path) -> None:
    """Seven containers lie side by side, without names. None is joined with its neighbours."""
    core = dumped(tmp_path, "-O2", strip=True)
    rows = answers.typed("owners", core)["tables"][0]["rows"]
    alone = [(row["bytes"], row["count"]) for row in rows if row["owner"].startswith("stale`0x")]
    assert sorted(alone) == sorted(truth(tmp_path).values())
    assert not [row for row in rows if row["how"] == "shared"]


def test_lists_side_by_side_are_not_one(tmp_path: Path) -> None:
    """Their items have one size. The words of a list or of a tree belong together, and no others do."""
    core = kernel_core(compile_c(HERE / "graph" / "neighbours.c", tmp_path / "neighbours", "-O1", "-s"), tmp_path)
    rows = answers.typed("owners", core)["tables"][0]["rows"]
    alone = [(row["bytes"], row["count"]) for row in rows if row["owner"].startswith("neighbours`0x")]
    assert sorted(alone) == sorted(truth(tmp_path).values())
    assert not [row for row in rows if row["how"] == "shared"]


def test_the_buffer_of_a_file_holds_bytes(tmp_path: Path) -> None:
    """Every second word of stdout's buffer was a pointer to an element of a list, before stdio got the memory."""
    source = tmp_path / "buffer.c"
    source.write_text(_BUFFER)
    core = kernel_core(compile_c(source, tmp_path / "buffer"), tmp_path, output=tmp_path / "out")
    rows = {row["owner"]: row for row in answers.typed("owners", core)["tables"][0]["rows"]}
    assert rows["buffer`head"]["how"] == "alone"
    assert rows["buffer`head"]["count"] == _NODES
    assert not [row for row in rows.values() if row["how"] == "shared"]


def test_a_local_belongs_to_the_thread_that_made_it(tmp_path: Path) -> None:
    """A list in a circle is a local of a thread, in a deep frame. main has an old word that leads into it."""
    source = tmp_path / "circles.c"
    source.write_text(_CIRCLES)
    for flags in ((), ("-s",)):
        where = tmp_path / f"core{len(flags)}"
        where.mkdir()
        core = kernel_core(compile_c(source, where / "circles", "-pthread", *flags), where)
        rows = [row for row in answers.typed("owners", core)["tables"][0]["rows"] if row["count"] == _NODES]
        assert len(rows) == 2
        (main,) = {thread["tid"] for thread in answers.typed("walk", core, "thread")["tables"][0]["rows"][:1]}
        for row in rows:
            (root,) = row["roots"]
            assert root["kind"] == "frame"
            assert root["tid"] != main
            assert row["owner"].endswith(f" of thread {root['tid']}")


def test_a_rare_structure_keeps_its_arrays(tmp_path: Path) -> None:
    """A map has 64 tables, which have arrays. 5,000 jobs have the size of its tables, and texts that of its index.

    A stale word of a stack leads to one of the arrays, too, and another one to a table.
    """
    source = tmp_path / "tables.c"
    source.write_text(_TABLES)
    core = kernel_core(compile_c(source, tmp_path / "tables"), tmp_path)
    rows = {row["owner"]: row for row in answers.typed("owners", core)["tables"][0]["rows"]}
    held = rows["tables`map"]
    # The map, and for each of its tables the table, its array, and the sessions in it.
    assert (held["how"], held["count"]) == ("alone", 1 + 64 * (1 + 1 + 400))
    assert rows["tables`jobs"]["count"] == 2 * 5000


def test_large_blocks_and_texts(tmp_path: Path) -> None:
    """tests/graph/leftover.c: blocks of one size tell which of their few pointers are left over.

    What begins with text has no pointers where structures have one. An array may begin with text.
    """
    core = kernel_core(compile_c(HERE / "graph" / "leftover.c", tmp_path / "leftover", "-O1"), tmp_path)
    rows = answers.typed("owners", core)["tables"][0]["rows"]
    counts = dict.fromkeys(("first", "second", "third"), 3000)
    counts.update(pieces=1 + 100, tables=1 + 100, holders=2 * 5000, others=1 + 100, texts=1 + 100, names=1)
    alone = {row["owner"].partition("`")[2]: row["count"] for row in rows if row["how"] == "alone"}
    assert {name: alone.get(name) for name in counts} == counts
    shared = {row["owner"]: row["count"] for row in rows if row["how"] == "shared"}
    assert shared == {"leftover`recent, leftover`tables": 100 * 5, "leftover`names, leftover`values": 200}


_NODES = 10000
_BUFFER = f"""
#include <stdio.h>
#include <stdlib.h>
struct node {{ struct node *next; char text[200]; }};
static struct node *volatile head;
int main(void)
{{
	for (int i = 0; i < {_NODES}; i++) {{
		struct node *made = calloc(1, sizeof *made);
		made->next = head;
		head = made;
	}}
	struct node **old = malloc(BUFSIZ), *node = head;
	for (size_t i = 0; i < BUFSIZ / sizeof *old; i += 2, node = node->next)
		old[i] = node;
	free(old);
	char *buffer = malloc(BUFSIZ);
	setvbuf(stdout, buffer, _IOFBF, BUFSIZ);
	printf("hello\\n");
	abort();
}}
"""
_CIRCLES = f"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
struct node {{ struct node *next, *prev; char text[100]; }};
static pthread_barrier_t barrier;
static struct node *volatile told[2];
__attribute__((noinline)) static void parked(struct node *list, long number)
{{
	told[number] = list->next->next;
	pthread_barrier_wait(&barrier);
	for (;;) {{
		pause();
		asm volatile("" : : "r"(list) : "memory");
	}}
}}
__attribute__((noinline)) static void filled(long number)
{{
	struct node list = {{&list, &list, ""}};
	for (int i = 0; i < {_NODES}; i++) {{
		struct node *made = calloc(1, sizeof *made);
		made->next = &list;
		made->prev = list.prev;
		list.prev->next = made;
		list.prev = made;
	}}
	// It is no circle through the stack: that would make any word lead everywhere.
	list.next->prev = list.prev;
	list.prev->next = list.next;
	parked(&list, number);
	asm volatile("" : : "r"(&list) : "memory");
}}
__attribute__((noinline)) static void deeper(long number) {{ filled(number); asm volatile(""); }}
__attribute__((noinline)) static void deep(long number) {{ deeper(number); asm volatile(""); }}
static void *thread(void *number) {{ deep((long)number); return NULL; }}
int main(void)
{{
	pthread_t made;
	struct node *volatile stale[2];
	pthread_barrier_init(&barrier, NULL, 3);
	pthread_create(&made, NULL, thread, (void *)0);
	pthread_create(&made, NULL, thread, (void *)1);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 2; i++) {{
		stale[i] = told[i];
		told[i] = NULL;
	}}
	abort();
	return stale[0] == stale[1];
}}
"""
_TABLES = """
#include <stdlib.h>
#include <string.h>
enum { tables = 64, sessions = 400, entries = 1000 };
struct session { char name[16]; long data[22]; };
struct table { long used, capacity; struct session **slots; long mask; };
struct job { struct job *next; char *text; long length, result; };
static struct table **volatile map;
static struct job *volatile jobs;
int main(void)
{
	map = malloc(tables * sizeof *map);
	for (int i = 0; i < 5000; i++) {
		struct job *made = calloc(1, sizeof *made);
		made->next = jobs;
		jobs = made;
		made->text = memset(malloc(tables * sizeof *map), 1, 500);
		if (i >= tables)
			continue;
		struct table *table = map[i] = calloc(1, sizeof *table);
		table->slots = calloc(entries, sizeof *table->slots);
		for (int k = 0; k < sessions; k++)
			table->slots[2 * k] = calloc(1, sizeof(struct session));
	}
	struct session **volatile stale = map[5]->slots;
	struct table *volatile other = map[9];
	abort();
	return stale != NULL && other != NULL;
}
"""


@pytest.mark.thorough("it compiles the program again")
@pytest.mark.parametrize("level", ["-O0", "-O1"])
def test_the_compiler_does_not_matter(tmp_path: Path, level: str) -> None:
    core = dumped(tmp_path, level)
    told = truth(tmp_path)
    found = held(core)
    assert {name: found.get(name) for name in told} == told
