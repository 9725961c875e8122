"""retained of kernels: what slab objects keep alive, against what a module of ours planted."""

from __future__ import annotations

from typing import Any

import pytest

from dmods.errors import UsageError
from drgnext.commands._slabs import LARGE
from drgnext.kernel.slabs.objects import OWN, slab_objects
from fixtures import answers, kernel
from tests.kernel import crashed
from tests.kernel.memory import FEWER, open_kernel
from tests.kernel.test_planted_slabs import Planted, planted

MODULE = "dmods_guest"


@pytest.fixture(scope="module")
def subject() -> Any:
    return open_kernel(kernel.guest("6.1"))


def test_objects_that_hold_nothing_keep_only_themselves_alive(subject: Any) -> None:
    rows = {row["cache"]: row for row in answers.by_name(crashed.ask(subject, "retained", "--top", "1000"))["caches"]}
    usage = {one.cache.name: one for one in slab_objects(subject).usage()}
    one, row = usage[MODULE], rows[MODULE]
    assert row["bytes"] + row["leaked_bytes"] == one.in_use * one.cache.object_size
    largest = answers.by_name(crashed.ask(subject, "retained", MODULE, "--top", "3"))["objects"]
    assert [(row["count"], row["bytes"], row["cache"]) for row in largest] == [(1, one.cache.object_size, MODULE)] * 3


def test_a_cache_keeps_at_least_its_own_objects_alive(subject: Any) -> None:
    slabs = slab_objects(subject)
    rows = {row["cache"]: row for row in answers.by_name(crashed.ask(subject, "retained", "--top", "1000"))["caches"]}
    assert not slabs.engine.evidence().get(OWN), "this kernel has no sheaves"
    for one in slabs.usage():
        if one.in_use:
            row = rows[one.cache.name]
            assert row["bytes"] + row["leaked_bytes"] >= one.in_use * one.cache.object_size


def test_an_address_in_no_object_is_an_error(subject: Any) -> None:
    with pytest.raises(UsageError, match="is in no slab object"):
        crashed.ask(subject, "retained", "0x10")


@pytest.fixture(scope="module", params=FEWER)
def one(request: Any) -> Planted:
    return planted(request.param)


def addresses(one: Planted, how: str) -> list[int]:
    return [address for name, address, _size in one.guest.ledger if name == how]


def retained(one: Planted, address: int) -> dict[str, Any]:
    return answers.by_name(crashed.ask(one.subject, "retained", hex(address), "--top", "100"))


@pytest.mark.thorough("it boots a guest with planted slab objects")
def test_a_leaked_block_keeps_what_it_alone_holds(one: Planted) -> None:
    (block,) = addresses(one, "leak_large")
    inside = addresses(one, "leak_in_large")
    found = retained(one, block)
    (row,) = found["retained"]
    assert (row["cache"], row["count"], row["leaked"]) == (LARGE, 1 + len(inside), "yes")
    assert {int(each["address"], 16) for each in found["below"]} == set(inside)
    counts = {each["cache"]: each["count"] for each in found["caches"]}
    assert counts[LARGE] == 1
    assert sum(counts.values()) == 1 + len(inside)
    above = retained(one, inside[0])["above"]
    assert [int(each["address"], 16) for each in above] == [block]


@pytest.mark.thorough("it boots a guest with planted slab objects")
def test_a_held_block_keeps_what_no_other_word_points_to(one: Planted) -> None:
    (block,) = addresses(one, "held_large")
    slabs, alone = slab_objects(one.subject), set()
    sizes = {address: size for _how, address, size in one.guest.ledger}
    inside = addresses(one, "in_large")
    for address in inside:
        words, _count = slabs.engine.holders(address, address + sizes[address], 100)
        if all(block <= at < block + sizes[block] for at, _value, _class in words):
            alone.add(address)
    found = retained(one, block)
    assert len(alone) > len(inside) // 2
    assert {int(each["address"], 16) for each in found["below"]} == alone
    assert (found["retained"][0]["count"], found["retained"][0]["leaked"]) == (1 + len(alone), "no")


@pytest.mark.thorough("it boots a guest with planted slab objects")
def test_the_first_of_a_leaked_chain_keeps_the_others(one: Planted) -> None:
    (first,) = addresses(one, "leak_chain")
    members = addresses(one, "leak_chain_member")
    assert retained(one, first)["retained"][0]["count"] == 1 + len(members)
    last = retained(one, members[-1])
    assert last["retained"][0]["count"] == 1
    assert [int(each["address"], 16) for each in last["above"]] == [*reversed(members[:-1]), first]


@pytest.mark.thorough("it boots a guest with planted slab objects")
def test_a_ring_is_kept_by_one_of_it(one: Planted) -> None:
    ring = addresses(one, "leak_ring")
    counts = sorted(retained(one, address)["retained"][0]["count"] for address in ring)
    assert counts == list(range(1, len(ring) + 1))
