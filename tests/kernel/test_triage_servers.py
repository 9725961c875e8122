"""Triage of NFS mounts: a silent server, few slots, and a mount that is well, as the guest's kernel said.

The guest is that of test_triage_troubles.py. Its servers are 127.0.0.1 to 127.0.0.4 (trouble_guest/nfs.c).
"""

from __future__ import annotations

import re

import pytest

from dmods.finding import Finding
from drgnext.kernel.system.ages import Clocks
from drgnext.kernel.system.nfs import Server, servers
from drgnext.kernel.system.reading import Reader
from fixtures.kernel import trouble
from fixtures.kernel.said import Said
from tests.kernel.test_triage_troubles import each_release, found, grows, many, number, opened

pytestmark = pytest.mark.thorough("it needs guests with mounts of NFS")

SILENT, OF_SESSION, OF_CONNECTION, WELL = (f"127.0.0.{number}" for number in range(1, 5))
PORT = 2049
DEBUG = "/sys/kernel/debug/sunrpc"


def tasks(guest: Said, address: str, queue: str) -> int:
    """Return how many tasks for that server debugfs showed in a queue of RPC."""
    count = 0
    for path, text in guest.said.items():
        client = re.fullmatch(rf"({DEBUG}/rpc_clnt/[0-9a-f]+)/tasks", path)
        if client is not None:
            connection = guest.said[f"{client[1]}/xprt"].rpartition("/")[2]
            lines = guest.said[f"{DEBUG}/rpc_xprt/{connection}/info"].splitlines()
            if {f"addr: {address}", f"port: {PORT}"} <= {" ".join(line.split()) for line in lines}:
                count += sum(line.endswith(f"q:{queue}") for line in text.splitlines())
    return count


def most_slots(guest: Said, address: str) -> int:
    """Return how many slots its connection has had, as /proc/self/mountstats has it (xs_tcp_print_stats())."""
    (mount,) = (each for each in guest.said["/proc/self/mountstats"].split("device ") if each.startswith(address))
    words = mount.partition("xprt:\ttcp ")[2].split()
    return int(words[10])


def in_sys(guest: Said, address: str) -> dict[str, int]:
    """Return what /sys says of the connection to that server, or nothing in 5.10."""
    for path, text in guest.said.items():
        if path.endswith("/dstaddr") and text.strip() == address:
            told = dict(re.findall(r"^(\w+)=(\d+)$", guest.said[path.replace("dstaddr", "xprt_info")], re.MULTILINE))
            if told.get("dst_port") == str(PORT):  # the server asks its clients back at another port
                return {name: int(value) for name, value in told.items()}
    assert guest.kernel.name == "5.10"
    return {}


def of_server(each: list[Finding], address: str) -> Finding:
    (one,) = (found for found in each if found.subject == address)
    return one


def known(release: str, address: str) -> Server:
    """Return what the dump has of that server."""
    reader = Reader(opened(release))
    (server,) = (each for each in servers(reader, Clocks(reader)) if each.name == address)
    assert reader.notes == []
    return server


def backlog(guest: Said, address: str) -> int:
    """Return how many tasks waited for a slot of the connection: from /sys, where it is there, else from debugfs.

    Since 7.1 or so debugfs lists only tasks that have a slot.
    """
    return in_sys(guest, address).get("backlog_q_len", tasks(guest, address, "xprt_backlog"))


@each_release
def test_a_server_that_is_silent(release: str) -> None:
    guest = trouble.guest(release, many(release))
    (silent,) = found(release)["nfs-no-answer"]
    slots, waiting = guest.truth["slots"], backlog(guest, SILENT)
    assert silent.subject == SILENT
    assert tasks(guest, SILENT, "xprt_pending") == most_slots(guest, SILENT) == slots
    assert number(silent.what, r"has not answered ([\d,]+) requests") == slots
    # The kernel renews its lease meanwhile: one more task may have come between its word and the crash.
    assert number(silent.what, r"; (\d+) more wait for a slot") == pytest.approx(waiting, abs=1)
    assert waiting >= guest.truth["writers"] - slots
    assert silent.weight >= 16  # seconds
    assert f"NFS 4.0 to {SILENT}: {slots} of {slots} slots taken" in silent.evidence[0].what
    said = in_sys(guest, SILENT)
    if said:
        assert said["num_reqs"] == said["max_num_slots"] == slots


@each_release
def test_slots_of_a_connection_that_are_too_few(release: str) -> None:
    guest = trouble.guest(release, many(release))
    few = of_server(found(release)["nfs-slots"], OF_CONNECTION)
    _is_narrow(guest, few, backlog(guest, OF_CONNECTION))
    assert "sunrpc.tcp_max_slot_table_entries, or mount with nconnect=4" in few.remedy
    (one,) = known(release, OF_CONNECTION).connections
    assert one.most == most_slots(guest, OF_CONNECTION) == guest.truth["slots"]


@each_release
def test_slots_of_a_session_that_are_too_few(release: str) -> None:
    guest = trouble.guest(release, many(release))
    session = known(release, OF_SESSION).session
    assert session is not None
    if grows(release):
        assert [each.subject for each in found(release)["nfs-slots"]] == [OF_CONNECTION]
        assert session.most > guest.truth["slots"]
        assert session.waiting == 0
        return
    few = of_server(found(release)["nfs-slots"], OF_SESSION)
    _is_narrow(guest, few, tasks(guest, OF_SESSION, "ForeChannel Slot table"))
    assert "max_session_slots" in few.remedy
    assert session.most == guest.truth["slots"]


def _is_narrow(guest: Said, few: Finding, waiting: int) -> None:
    slots, writers = guest.truth["slots"], guest.truth["writers"]
    assert f"to the NFS server {few.subject} wait for one of {slots} slots, on 1 connection" in few.what
    assert slots <= waiting <= writers
    # Those that were answered since the kernel's word have asked again, or will.
    assert few.weight == pytest.approx(waiting, abs=slots + 2)


@each_release
def test_a_mount_that_is_well(release: str) -> None:
    guest = trouble.guest(release, many(release))
    assert not [each for kind in found(release).values() for each in kind if each.subject == WELL]
    server = known(release, WELL)
    lines = [line.split() for line in guest.said["/proc/mounts"].splitlines()]
    (mount,) = (line for line in lines if line[2] == "nfs4" and line[0].startswith(WELL))
    assert f"vers={server.version}" in mount[3].split(",")
    assert (server.nconnect, server.mounts) == (1, 1)
    (one,) = server.connections
    assert one.connected
    assert (one.used, one.waiting, one.sent) == (0, 0, 0)
    assert server.session is not None
    assert (server.session.used, server.session.waiting) == (0, 0)
    assert server.session.most == guest.truth["slots"]
    said = in_sys(guest, WELL)
    if said:
        assert (one.most, 0, 0) == (said["max_num_slots"], said["backlog_q_len"], said["tasks_queuelen"])
