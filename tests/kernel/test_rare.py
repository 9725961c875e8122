"""Full cgroups, files without a mount and namespaces, compared with what the guest's kernel said of itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fixtures.kernel import rare
from tests.kernel.rare_case import RareCase
from tests.kernel.rare_case import case as rare_case

pytestmark = pytest.mark.thorough("it needs a guest with what few systems have")

_seldom = pytest.mark.seldom("each kernel's guest takes a minute or two")


@pytest.fixture(
    scope="module", params=[pytest.param("5.10", marks=_seldom), pytest.param("6.12", marks=_seldom), "sid"]
)
def case(request: Any) -> RareCase:
    return rare_case(request.param)


def events(case: RareCase, group: str) -> dict[str, int]:
    """Return memory.events.local of a group; of cgroup v1, its failcnt as "max"."""
    folder = f"/sys/fs/cgroup/rare/{group}"
    if case.guest.kernel.name in rare.FIRST_CGROUPS:
        return {"max": int(case.guest.said[f"{folder}/memory.failcnt"])}
    lines = case.guest.said[f"{folder}/memory.events.local"].splitlines()
    return {name: int(value) for name, value in map(str.split, lines)}


def test_memcgs_count_how_often_a_limit_was_hit(case: RareCase) -> None:
    rows = {row["path"].rpartition("/")[2]: row for row in case.rows("memcgs", "memcgs")}
    said = events(case, "killed")
    assert said["max"] > 0
    assert (rows["killed"]["failed"], rows["calm"]["failed"]) == (said["max"], 0)
    assert rows["killed"]["killed"] == said.get("oom_kill", 1)
    assert rows["calm"]["killed"] == 0


def test_memcgs_have_no_swap_without_swap(case: RareCase) -> None:
    """In cgroup v1 the kernel's counter has memory and swap together."""
    rows = {row["path"].rpartition("/")[2]: row for row in case.rows("memcgs", "memcgs")}
    assert rows["calm"]["current"] > 2 << 20
    assert rows["calm"]["swap"] == 0


def test_files_have_the_names_of_proc(case: RareCase) -> None:
    pid = case.guest.truth["pid_keeper"]
    links = {path: text for path, text in case.guest.said.items() if path.startswith(f"/proc/{pid}/fd/")}
    assert len(links) > 20
    found = {f"/proc/{pid}/fd/{row['fd']}": row["path"] for row in case.rows("files", "files", str(pid))}
    assert found == links


def test_dentries_name_memory_without_a_file(case: RareCase) -> None:
    paths = {row["path"] for row in case.rows("files", "dentries", "--top", "50")}
    assert "/memfd:plain (deleted)" in paths


def test_secret_memory_has_a_line_of_its_own(case: RareCase) -> None:
    if "secret_pages" not in case.guest.truth:
        assert case.guest.kernel.name == "5.10"  # memfd_secret() is of 5.14
        return
    kinds = {row["name"]: row["pages"] for row in case.rows("kinds", "memstat", "-v")}
    assert kinds["secret"] == case.guest.truth["secret_pages"]


def namespace(case: RareCase, name: str) -> int:
    pid = case.guest.truth[f"pid_{name}"]
    found = re.fullmatch(r"net:\[(\d+)\]", case.guest.said[f"/proc/{pid}/ns/net"])
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", ["outside", "inside"])
def test_netdev_has_the_addresses_of_each_namespace(case: RareCase, name: str) -> None:
    pid = case.guest.truth[f"pid_{name}"]
    lines = [line.split() for line in case.guest.said[f"/proc/{pid}/net/if_inet6"].splitlines()]
    said = {f"{':'.join(re.findall('....', line[0]))}/{int(line[2], 16)}" for line in lines if line[-1] == "lo"}
    (row,) = [one for one in case.rows("devices", "netdev") if one["namespace"] == namespace(case, name)]
    assert len(said) == 2
    assert {_full(one) for one in row["ipv6"]} == said


def _full(address: str) -> str:
    import ipaddress

    text, _slash, prefix = address.partition("/")
    return f"{ipaddress.IPv6Address(text).exploded}/{prefix}"


def test_sockets_are_of_their_namespace(case: RareCase) -> None:
    rows = {row["local"].rpartition(":")[2]: row for row in case.rows("sockets", "sockets", "-S", "LISTEN")}
    assert rows["8001"]["namespace"] == namespace(case, "outside")
    assert rows["8002"]["namespace"] == namespace(case, "inside")
    assert namespace(case, "inside") != namespace(case, "outside")


def test_the_namespace_is_shown_where_there_is_more_than_one(case: RareCase) -> None:
    from dmods.command import KERNEL
    from fixtures import answers

    assert "NETNS" in answers.text(case.kernel, "netdev", side=KERNEL)
    assert "NETNS" in answers.text(case.kernel, "sockets", side=KERNEL)
    assert "NETNS" not in answers.text(case.kernel, "sockets", "inside", side=KERNEL)


def test_dmesg_says_who_printed_a_line(case: RareCase) -> None:
    """The kernel's traces have the task that prints them. Only 7.0 and later note its name beside the line."""
    rows = case.rows("log", "dmesg", "-w")
    told = [(row, re.search(r"\bPID: (\d+) Comm: (\S+)", row["text"])) for row in rows]
    traces = [(row, found) for row, found in told if found is not None]
    assert traces
    names = case.guest.kernel.name == "sid"
    for row, found in traces:
        assert row["task"] == (found[2] if names else None)
        assert row["who"] == (f"T{found[1]} {found[2]}" if names else f"T{found[1]}")
