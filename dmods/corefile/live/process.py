"""Reads what /proc says of a live process, and tells why it cannot be stopped: ptrace(2), "access mode checking"."""

from __future__ import annotations

import os
import re
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.errors import UserError

_CAP_SYS_PTRACE = 1 << 19  # linux/capability.h
_PF_KTHREAD = 0x00200000  # linux/sched.h
_YAMA = "kernel.yama.ptrace_scope=1 in /etc/sysctl.d, for the next boot"
_CONTAINER = "on the host, or in a container with --cap-add=SYS_PTRACE --security-opt seccomp=unconfined"
_HAS_ENDED = "Z", "X", "x"


class Status(NamedTuple):
    """A process: its name, its state, the pid of its tracer (0: none), its users, and its memory in bytes."""

    name: str
    state: str
    tracer: int
    uids: tuple[int, ...]
    memory: int


def status_of(pid: int) -> Status:
    """Return what /proc/PID/status says. Raises UserError where there is no such process."""
    text = read_text(f"/proc/{pid}/status")
    fields = dict(re.findall(r"^(\w+):\s*(.*)$", text, re.MULTILINE))
    if not fields:
        raise UserError(f"there is no process {pid}", "`ps -e` lists the processes")
    group = fields.get("Tgid", str(pid))
    if group != str(pid):
        raise UserError(f"{pid} is a thread of process {group}", f"give the process: -p {group}")
    of_memory = dict(re.findall(r"^(\w+):\s*(.*)$", read_text(f"{folder_of(pid)}/status"), re.MULTILINE))
    sizes = [of_memory.get(name, "0").split()[0] for name in ("RssAnon", "RssShmem", "VmSwap")]
    return Status(
        fields.get("Name", ""),
        fields.get("State", "")[:1],
        int(fields.get("TracerPid", "0")),
        tuple(int(word) for word in fields.get("Uid", "").split()),
        1024 * sum(int(size) for size in sizes if size.isdecimal()),
    )


def check(pid: int) -> Status:
    """Return the status of a process that can have a picture. Raises UserError where it is clear that it cannot."""
    found = status_of(pid)
    shown = f"process {pid} ({found.name})"
    if pid == os.getpid():
        raise UserError(f"{shown} is this dmods itself", "give the pid of another process")
    if found.state in _HAS_ENDED and _living_thread(pid) is None:
        raise UserError(f"{shown} has ended: it is a zombie, and has no memory", "its parent did not wait for it yet")
    if _is_kernel_thread(pid):
        raise UserError(f"{shown} is a thread of the kernel, and has no memory of its own", "for kernels: a vmcore")
    if found.tracer:
        tracer = read_text(f"/proc/{found.tracer}/comm").strip() or "a process of another namespace"
        raise UserError(
            f"{shown} has a tracer already: process {found.tracer} ({tracer})",
            "let the debugger go (in gdb: detach; strace: Ctrl-C), or ask in it: `dmods gdb -p` has all commands",
        )
    return found


def refusal(pid: int, found: Status, proc: str = "/proc") -> UserError:
    """Return the error that says which permission is missing to stop and read the process, and how to get it."""
    what, as_root = f"no permission to stop process {pid} ({found.name})", f"as root: sudo dmods NAME -p {pid}"
    scope = read_text(f"{proc}/sys/kernel/yama/ptrace_scope").strip()
    if scope == "3":
        return UserError(f"{what}: kernel.yama.ptrace_scope=3 forbids it to everybody until the next boot", _YAMA)
    if _has_capability(proc):
        # Capabilities count in their own user namespace only. Filters and security modules forbid it to everybody.
        return UserError(f"{what}, in spite of CAP_SYS_PTRACE: {_forbidden_by(proc)} forbids it", _CONTAINER)
    lacks = "CAP_SYS_PTRACE is missing"
    # The real user counts (ptrace(2), PTRACE_MODE_REALCREDS).
    others = [uid for uid in found.uids[:3] if uid != os.getuid()]
    if others:
        return UserError(f"{what}: it belongs to user {others[0]}, and {lacks}", as_root)
    if scope in ("1", "2"):
        how = f"{as_root}; or: sysctl kernel.yama.ptrace_scope=0"
        return UserError(f"{what}: kernel.yama.ptrace_scope={scope} allows it to parents only, and {lacks}", how)
    if _owner(pid, proc) not in (None, os.geteuid()):
        return UserError(
            f"{what}: it is not dumpable (it changed its user, or said PR_SET_DUMPABLE), and {lacks}", as_root
        )
    return UserError(f"{what}: {_forbidden_by(proc)} forbids it, and {lacks}", f"{as_root}; {_CONTAINER}")


def folder_of(pid: int, proc: str = "/proc") -> str:
    """Return the folder in /proc that has the memory, the files and the program of a process.

    Those of a thread that has ended are empty, and the first thread may end before the others (pthread_exit in main).
    Then it is that of a thread which lives: /proc/TID is not listed, and is there (fs/proc/base.c, proc_pid_lookup).
    """
    folder = os.path.join(proc, str(pid))
    living = _living_thread(pid, proc) if _has_ended(folder) else None
    return folder if living is None else os.path.join(proc, str(living))


def root_of(pid: int) -> Optional[str]:
    """Return the folder that the process's files are below, or None where its root is ours, or cannot be read.

    It is /proc/PID/root in another mount namespace, whose files have no other path here.
    """
    folder = folder_of(pid)
    try:
        if os.readlink(f"{folder}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return f"{folder}/root"
        root = os.readlink(f"{folder}/root")
        return root if root != os.readlink("/proc/self/root") else None
    except OSError:
        return None


def read_text(path: str) -> str:
    """Return a file of /proc, or "" where it cannot be read."""
    return read_bytes(path).decode("utf-8", "surrogateescape")


def read_bytes(path: str) -> bytes:
    """Return a file of /proc, or b"" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _living_thread(pid: int, proc: str = "/proc") -> Optional[int]:
    """Return the tid of the first thread of a process that has not ended, or None."""
    try:
        tids = sorted(int(name) for name in os.listdir(f"{proc}/{pid}/task") if name.isdecimal())
    except OSError:
        return None
    return next((tid for tid in tids if not _has_ended(f"{proc}/{pid}/task/{tid}")), None)


def _has_ended(folder: str) -> bool:
    """Return whether a thread has ended, by its folder in /proc."""
    state = read_text(f"{folder}/stat").rpartition(")")[2].split()[:1]
    return not state or state[0] in _HAS_ENDED


def _is_kernel_thread(pid: int) -> bool:
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return len(fields) > 6 and fields[6].isdecimal() and bool(int(fields[6]) & _PF_KTHREAD)


def _has_capability(proc: str) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text(f"{proc}/self/status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & _CAP_SYS_PTRACE)


def _owner(pid: int, proc: str) -> Optional[int]:
    """Return the owner of the process's files in /proc: root where the process is not dumpable (proc(5))."""
    try:
        return os.stat(f"{proc}/{pid}/status").st_uid
    except OSError:
        return None


def _forbidden_by(proc: str) -> str:
    if re.search(r"^Seccomp:\s*2$", read_text(f"{proc}/self/status"), re.MULTILINE):
        return "the seccomp filter of this container"
    label = read_text(f"{proc}/self/attr/current").strip("\0\n")
    if label.endswith(("(enforce)", "(kill)")):
        return f"AppArmor ({label})"
    return "a namespace or a security module (SELinux: deny_ptrace)"
