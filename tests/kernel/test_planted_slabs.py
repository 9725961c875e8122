"""Slab objects that a module of ours held, leaked, freed and damaged, and what the kernel said of all objects."""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dmods.base.dataclass import replace
from dmods.errors import UserError
from drgnext.commands import whatis
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.leaks import kernel_leaks
from drgnext.kernel.slabs.objects import (
    ALLOCATED_STATES,
    FREE,
    FREE_CPU,
    FREE_SHEAF,
    LEAKED,
    PHYSICAL,
    PLAIN,
    STACK,
    UNALIGNED,
    SlabObjects,
)
from drgnext.kernel.slabs.objects import slab_objects as objects_of
from drgnext.kernel.slabs.tracks import Tracks
from fixtures import answers, kernel
from fixtures.kernel import Guest
from fixtures.limits import HANG
from tests.kernel import crashed
from tests.kernel.memory import FEWER, open_kernel
from tests.kernel.test_slabs import KNOWN_LEAKS
from tests.output.everything import SLAB_RECORDS
from tests.output.test_schema import wrong

pytestmark = pytest.mark.thorough("it boots a guest with planted slab objects")

FREED = {FREE, FREE_CPU, FREE_SHEAF}
#: The states that an object may have, by how the module planted it (fixtures/kernel/plant/dmods_plant.c).
STATES: dict[str, set[int]] = defaultdict(lambda: {PLAIN})
STATES |= {
    **{how: {LEAKED} for how in ("leak_single", "leak_text", "leak_chain", "leak_chain_member", "leak_ring")},
    **{how: {LEAKED} for how in ("leak_large", "leak_in_large", "leak_number")},
    "stack": {STACK},
    "unaligned": {UNALIGNED},
    "physical": {PHYSICAL},
    "descriptor": {PHYSICAL},
    "freed": FREED,
    # kfree_rcu() keeps objects in a batch of its own for up to five seconds.
    "freed_by_rcu": {PLAIN, *FREED},
}
#: Objects that the module misused.
DAMAGED = ("overrun", "used_after_free", "astray")
#: The functions of the module that leak, and what they leak directly.
LEAKS = {"leak_single": 20, "leak_number": 20, "leak_text": 20, "leak_chain": 1, "leak_ring": 1}


@dataclass(frozen=True)
class Planted:
    guest: Guest
    subject: Any
    findleaks: dict[str, Any]
    _known: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)

    def ask(self, *words: str) -> dict[str, Any]:
        """Return the answer of a command. Some take seconds, and several tests want them."""
        if words not in self._known:
            self._known[words] = crashed.ask(self.subject, *words)
        return self._known[words]


#: The states of a leak that something seems to hold: weak evidence, which --doubtful lists.
CHANCE = {STACK, UNALIGNED}
#: Memory of the guests that are tried one after the other.
SIZES = ("256M", "264M", "272M", "280M")


@cache
def planted(release: str, slub_debug: str = "U", damage: bool = False) -> Planted:
    """Return a guest in which nothing holds a leak by chance (docs/LIMITS.md).

    A call may have left a word on a stack. A number that equals a physical address holds no object: "leak_number".
    """
    for size in SIZES:
        guest = kernel.guest(release, "null", size, plant=True, slub_debug=slub_debug, damage=damage)
        subject = open_kernel(guest)
        one = Planted(guest, subject, crashed.ask(subject, "findleaks", "-i", "-v", "--doubtful"))
        slabs = objects_of(subject)
        found = [slabs.object_at(address) for how, address, _size in guest.ledger if how.startswith("leak")]
        if not any(each is not None and each.state in CHANCE for each in found):
            return one
    raise AssertionError("in each guest something held a leak: that is no chance")


@pytest.fixture(scope="module", params=FEWER)
def one(request: Any) -> Planted:
    return planted(request.param)


def check_states(one: Planted) -> None:
    slabs = objects_of(one.subject)
    wrong = Counter()
    for how, address, _size in one.guest.ledger:
        found = slabs.object_at(address)
        state = None if found is None or found.address != address else found.state
        if state not in STATES[how] and how not in DAMAGED:
            wrong[how, state] += 1
    assert not wrong


def test_every_planted_object_is_what_the_ledger_says(one: Planted) -> None:
    crashed.ask(one.subject, "findleaks")
    check_states(one)


def test_nothing_else_leaks(one: Planted) -> None:
    told = {hex(address) for how, address, _size in one.guest.ledger if how.startswith("leak")}
    found = {row["address"] for row in answers.by_name(one.ask("walk", "leakbuf"))["leakbuf"]}
    assert told <= found
    _cache, most, _where = KNOWN_LEAKS.get(one.guest.kernel.name, ("", 0, ""))
    assert len(found - told) <= most
    (totals,) = (one.findleaks["totals"],)
    assert totals["leaked_count"] == len(found)
    assert {row["what"].split()[0] for row in answers.by_name(one.findleaks)["by_design"]} == {"ctl_table_header"}


def test_what_is_held_by_an_orphan_is_no_leak(one: Planted) -> None:
    rows = answers.by_name(one.findleaks)["evidence"]
    (aside,) = (row["objects"] for row in rows if "on purpose" in row["evidence"])
    assert aside == sum(1 + row["kept_count"] for row in answers.by_name(one.findleaks)["by_design"])


def test_leaks_have_the_stacks_of_the_functions_that_leaked(one: Planted) -> None:
    found: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    _cache, _most, bug = KNOWN_LEAKS.get(one.guest.kernel.name, ("", 0, "no such function"))
    for row in answers.by_name(one.findleaks)["leaks"]:
        names = [frame["name"].rpartition("`")[2].partition("+")[0] for frame in row["stack"]]
        if bug in names:
            continue
        (how,) = set(names) & LEAKS.keys()
        found[how] += row["leaked"]
        kept[how] += row["kept_count"]
        assert row["caller"].startswith("dmods_plant`")
    assert found == LEAKS
    assert (kept["leak_chain"], kept["leak_ring"]) == (4, 4)
    # A block of kmalloc with its own pages has no record.
    (large,) = answers.by_name(one.findleaks)["unrecorded"]
    assert (large["cache"], large["leaked"], large["kept_count"]) == ("kmalloc-large", 1, 20)
    assert large["buffer"] == hex(next(address for how, address, _size in one.guest.ledger if how == "leak_large"))
    # The kernel's own counter confirms that it is one (before 6.14, which marks these pages).
    assert not any("probable" in note for note in one.findleaks["notes"])


def test_a_block_of_kmalloc_that_is_only_probable(one: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sentence of whatis says "probably" as long as the kernel does not confirm it by its own counter."""
    address, size = next((address, size) for how, address, size in one.guest.ledger if how == "leak_large")
    found = kernel_leaks(one.subject)
    for doubt, word in ((found.large_doubt, ""), ("it may be something else", "probably ")):
        monkeypatch.setattr(whatis, "kernel_leaks", lambda *_args, doubt=doubt: replace(found, large_doubt=doubt))
        tables = answers.by_name(crashed.ask(one.subject, "whatis", hex(address + 16)))
        text = tables["whatis"][0]["sentence"]
        assert text.startswith(f"{address + 16:#x} is {word}0x10 into a block of kmalloc, ")
        assert int(text.rpartition(",")[2].split()[0]) >= size


def test_weak_evidence_is_named(one: Planted) -> None:
    doubtful = answers.by_name(one.findleaks)["doubtful"]
    found: Counter[str] = Counter()
    for row in doubtful:
        if row["cache"] == "dmods_plant":
            found[row["evidence"]] += row["held"]
    assert sorted(found.values()) == [20, 20, 40]  # of a stack, unaligned; physical addresses in lists and descriptors
    rows = {row["evidence"]: row["objects"] for row in answers.by_name(one.findleaks)["evidence"]}
    assert all(rows[evidence] >= count for evidence, count in found.items())


def traces(text: str) -> dict[str, Counter[tuple[str, ...]]]:
    """Return how many objects each stack has, by cache. Before 5.14 a stack is the caller alone."""
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for part in re.split(r"^cache ", text, flags=re.M)[1:]:
        name, _newline, rest = part.partition("\n")
        counts = found[name] = Counter()
        for count, caller, more in re.findall(r"^ +(\d+) (\S+).*\n((?:\t| {8}\S.*\n| {8}\S.*)*)", rest, re.M):
            frames = tuple(re.findall(r"^\s+(\w\S*?)(?:/0x[0-9a-f]+)?(?: \[\w+\])?$", more, re.M))
            counts[frames or (caller.partition("/")[0],)] += int(count)
    return found


def test_the_kernel_counts_the_same_objects(one: Planted) -> None:
    """alloc_traces of debugfs was the last thing that the guest read. A little has changed until the crash."""
    told = traces((one.guest.oracle / "alloc_traces").read_text())
    answer = one.ask("umausers", "--by", "cache", "--all")
    found = {row["cache"]: row["count"] for row in answers.by_name(answer)["users"]}
    sums = {name: sum(counts.values()) for name, counts in told.items() if counts}
    assert len(sums) > 80
    differ = {name: (count, found.get(name, 0)) for name, count in sums.items() if found.get(name, 0) != count}
    assert len(differ) <= len(sums) * 0.12, differ
    assert sum(abs(a - b) for a, b in differ.values()) <= 0.03 * sum(sums.values()), differ
    assert found["dmods_plant"] == sums["dmods_plant"]


def test_the_kernel_counts_the_same_stacks(one: Planted) -> None:
    told = traces((one.guest.oracle / "alloc_traces").read_text())["dmods_plant"]
    subject = one.subject
    found: Counter[tuple[str, ...]] = Counter()
    slabs = objects_of(subject)
    tracks, callers = Tracks(slabs), KernelCallers(subject)
    cache = slabs.named("dmods_plant")
    assert cache is not None
    for address in slabs.walk(cache, free=False):
        one_object = slabs.object_at(address)
        assert one_object is not None
        record = tracks.of(one_object, False)
        assert record is not None
        names = [callers.name(frame).rpartition("`")[2] for frame in record.stack.frames]
        found[tuple(names)] += 1
    if all(len(frames) == 1 for frames in told):  # 5.10 tells the caller alone
        alone: Counter[tuple[str, ...]] = Counter()
        for frames, count in found.items():
            alone[next((name,) for name in frames if name.startswith("take+"))] += count
        assert alone == told
        return
    # kallsyms and debug information name some of the kernel's entry code differently.
    assert Counter({frames[:3]: count for frames, count in _shorter(found).items()}) == _shorter(told)


def _shorter(counts: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for frames, count in counts.items():
        found[frames[:3]] += count
    return found


def test_no_stack_names_code_that_came_later(one: Planted) -> None:
    """The initialization code of other modules lay where our module is now. Our module called nothing before them."""
    slabs = objects_of(one.subject)
    tracks, callers = Tracks(slabs), KernelCallers(one.subject)
    first = min(_allocated(slabs, tracks, address) for how, address, _size in one.guest.ledger if how == "leak_single")
    named = [
        user
        for user in map(tracks.user, slabs.engine.groups(list(ALLOCATED_STATES), False))
        if any(name.startswith("dmods_plant`") for name in callers.names(user.stack))
    ]
    # A new slab for the first object is recorded just before that object itself.
    assert min(user.time for user in named) >= first - 8_000_000  # two ticks
    # Blocks of kmalloc with their own pages have no records.
    unrecorded = {"freed", "freed_by_rcu", "leak_large", "held_large"}
    assert sum(user.count for user in named) >= sum(how not in unrecorded for how, *_rest in one.guest.ledger)


def _allocated(slabs: SlabObjects, tracks: Tracks, address: int) -> int:
    """Return when an object was allocated, in ns since the boot."""
    found = slabs.object_at(address)
    record = tracks.of(found, False) if found is not None else None
    assert record is not None
    return record.time


def test_records_of_one_object(one: Planted) -> None:
    address = next(address for how, address, _size in one.guest.ledger if how == "leak_text")
    (row,) = answers.by_name(one.ask("bufctl_audit", hex(address)))["bufctl_audit"]
    assert (row["bufaddr"], row["thread"], row["event"]) == (hex(address), 1, "live")
    assert row["caller"].startswith("dmods_plant`leak_text+")
    # Since 6.1 the kernel records what kmalloc was asked for.
    text = "a text that nobody keeps, of some sixty bytes with its end"
    assert row["requested"] == (len(text) + 1 if not one.guest.release.startswith("5.") else None)
    (brief,) = answers.by_name(one.ask("bufctl", row["addr"]))["bufctl"]
    assert (brief["addr"], brief["bufaddr"]) == (row["addr"], hex(address))
    walked = answers.by_name(one.ask("walk", "bufctl", "dmods_plant"))["bufctl"]
    slabs = objects_of(one.subject)
    held = [address for how, address, _size in one.guest.ledger if how in ("xarray", "leak_single")]
    assert {hex(address) for address in held} <= {each["buffer"] for each in walked}
    assert slabs.named("dmods_plant") is not None


def test_who_freed_an_object(one: Planted) -> None:
    address = next(address for how, address, _size in one.guest.ledger if how == "freed")
    (row,) = answers.by_name(one.ask("whatis", hex(address)))["object"]
    assert row["state"].startswith("free")
    assert "pid 1," in row["freed_by"]
    assert "pid 1," in row["allocated_by"]
    names = [frame["name"] for frame in row["stack"]]
    assert any("free_some+" in name for name in names)
    freed = one.ask("freedby", "1")
    assert hex(address) in {each["bufaddr"] for each in answers.by_name(freed)["freedby"]}
    by_init = one.ask("allocdby", "1")
    assert {each["thread"] for each in answers.by_name(by_init)["allocdby"]} == {1}
    assert by_init["totals"]["buffers"] >= 300


def test_the_profile_has_what_each_function_allocated(one: Planted, tmp_path: Path) -> None:
    """The module's ledger is the truth, and pprof reads the same rows."""
    known = Counter(how for how, _address, _size in one.guest.ledger)
    sizes = {how: size for how, _address, size in one.guest.ledger}
    whole = one.ask("profile", "--top", "100000", "--sample", "inuse_objects")
    rows = {row["function"].partition("`")[2]: row for row in answers.by_name(whole)["top"]}
    for how in ("leak_single", "leak_text"):
        assert rows[how]["cum"] == known[how] == 20
    held = one.ask("profile", "--top", "100000", "--focus", "leak_text$")
    # kmalloc's caches are powers of two there, from 128 on for arm64 (ARCH_KMALLOC_MINALIGN, until 6.5).
    least = 128 if one.guest.kernel.name.endswith("arm64") else 8
    whole_object = max(least, 1 << (sizes["leak_text"] - 1).bit_length())
    assert held["totals"]["shown"] == known["leak_text"] * whole_object
    users = one.ask("umausers", "--by", "cache", "--all")
    assert held["totals"]["total"] == users["totals"]["live_bytes"]
    crashed.ask(one.subject, "profile", "-o", str(tmp_path / "x.pb.gz"), "--sample", "inuse_objects")
    command = ["go", "tool", "pprof", "-top", "-sample_index=inuse_objects", "-nodefraction=0", "-nodecount=100000"]
    text = subprocess.run(
        [*command, tmp_path / "x.pb.gz"], check=True, capture_output=True, text=True, cwd="/", timeout=HANG
    ).stdout
    rows_of = re.finditer(r"^ *\d+ +\S+% +\S+% +(\d+) +\S+% +(\S+)", text, re.MULTILINE)
    own = {match[2]: int(match[1]) for match in rows_of}
    assert {name: own[name] for name in own if name.endswith(("`leak_single", "`leak_text"))} == {
        "dmods_plant`leak_single": 20,
        "dmods_plant`leak_text": 20,
    }


def test_every_command_on_records_fits_the_schema(one: Planted) -> None:
    address = next(address for how, address, _size in one.guest.ledger if how == "leak_text")
    # As other tests ask, where a command has more than one form.
    tried = {
        "allocdby": "1",
        "freedby": "1",
        "bufctl": hex(address),
        "bufctl_audit": hex(address),
        "umausers": "--by cache --all",
        "profile": "--top 100000 --sample inuse_objects",
    }
    assert {*tried, "kmausers"} == SLAB_RECORDS
    for name in sorted(SLAB_RECORDS):
        words = tried[name].split() if name in tried else []
        assert wrong(one.ask(name, *words)) == [], name


def test_ages_are_those_of_the_kernel(one: Planted) -> None:
    """alloc_traces tells ages in jiffies. All planted objects are of the same seconds."""
    address = next(address for how, address, _size in one.guest.ledger if how == "xarray")
    (row,) = answers.by_name(one.ask("bufctl_audit", hex(address)))["bufctl_audit"]
    boot = int(row["timestamp"], 16) if isinstance(row["timestamp"], str) else row["timestamp"]
    assert 0 < boot < 300 * 10**9
    text = (one.guest.oracle / "alloc_traces").read_text().partition("cache dmods_plant\n")[2]
    ages = [int(age) for age in re.findall(r"age=(\d+)", text.partition("cache ")[0])]
    said = answers.by_name(one.ask("whatis", hex(address)))["object"][0]["allocated_by"]
    seconds = float(re.findall(r"([\d.]+) s before", said)[0])
    assert min(ages) / 250 - 1 <= seconds <= max(ages) / 250 + 60  # HZ=250 in Debian; the oracle came before


@pytest.mark.parametrize("release", ["6.1", "sid"])
def test_without_tracks(release: str) -> None:
    """Objects have no records then. On 7.0 and later, free ones are in sheaves."""
    one = planted(release, "")
    crashed.ask(one.subject, "findleaks")
    check_states(one)
    leaks = {row["cache"]: row["leaked"] for row in answers.by_name(one.findleaks)["leaks"]}
    assert leaks["dmods_plant"] == 42
    assert leaks["kmalloc-large"] == 1
    with pytest.raises(UserError, match="slub_debug=U"):
        one.ask("umausers")


@pytest.mark.parametrize("release", ["6.1", "sid"])
def test_damage(release: str) -> None:
    one = planted(release, "UZP", True)
    rows = answers.by_name(one.ask("slabcheck"))["faults"]
    at = {how: hex(address) for how, address, _size in one.guest.ledger}
    found = {(row["object"], row["kind"]): row for row in rows}
    assert found[at["overrun"], "behind"]["found"] == "78 78 78"
    assert found[at["overrun"], "behind"]["culprit"] == at["overrun"]
    assert found[at["used_after_free"], "freed"]["at"] == hex(int(at["used_after_free"], 16) + 40)
    assert found[at["astray"], "freed"]["length"] > 100
    assert {object_ for object_, _kind in found} == {at["overrun"], at["used_after_free"], at["astray"]}
    who = answers.by_name(one.ask("slabcheck"))
    assert "who" not in who or all(re.search("damage|plant_write", row["who"]) for row in who["who"])
    # Damage is no leak.
    check_states(one)


def test_a_freelist_that_leads_astray() -> None:
    one = planted("6.1", "", True)
    at = {how: hex(address) for how, address, _size in one.guest.ledger}
    answer = one.ask("slabcheck", "dmods_astray")
    (row,) = answers.by_name(answer)["faults"]
    assert (row["cache"], row["object"], row["kind"]) == ("dmods_astray", at["astray"], "list")
    assert any("damaged" in note for note in answer["notes"])
