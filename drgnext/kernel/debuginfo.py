"""The kernel's debugging information: where drgn does not look by itself, and what to install where there is none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from dmods.errors import UserError

_FINDER = "dmods"
# (what a distribution's releases look like, how its users get vmlinux with debugging information), by the
# distributions' own pages.
_DEBIAN = r"-(amd64|arm64|686|686-pae|armmp|armmp-lpae|ppc64el|riscv64|s390x)$"
_UBUNTU = r"-(generic|lowlatency|aws|azure|gcp|oracle|kvm)$"
_PACKAGES = (
    (_DEBIAN, "apt-get install linux-image-{release}-dbg"),
    (r"\.(el|fc|amzn)\d+\w*\.\w+$", "dnf debuginfo-install kernel-{release}"),
    (_UBUNTU, "apt-get install linux-image-{release}-dbgsym (ddebs.ubuntu.com)"),
    (r"-default$", "zypper install kernel-default-debuginfo"),
    (r"-arch\d+-\d+$", "DEBUGINFOD_URLS=https://debuginfod.archlinux.org drgn --try-symbols-by debuginfod ..."),
)  # fmt: skip


def prepare(prog: Any) -> bool:
    """Has drgn look in the current folder and beside the dump, too, for vmlinux and for modules, and in what was
    unpacked there (`dpkg -x`). drgn compares build-ids. Whether this was new: once is enough."""
    if _FINDER in prog.registered_debug_info_finders():
        return False
    folders = _folders(prog)
    unpacked = [path for folder in folders if os.path.isdir(path := os.path.join(folder, "usr", "lib", "debug"))]
    options = prog.debug_info_options
    options.directories = (*options.directories, *(path for path in unpacked if path not in options.directories))

    def find(modules: Sequence[Any]) -> None:
        for module in modules:
            for path in _candidates(module, folders, release(prog)):
                if module.wants_debug_file() and os.path.isfile(path):
                    module.try_file(path)

    # Behind drgn's own look at this machine's files, before anything is downloaded.
    enabled = prog.enabled_debug_info_finders()
    place = enabled.index("standard") + 1 if "standard" in enabled else 0
    prog.register_debug_info_finder(_FINDER, find, enable_index=place)
    return True


def _folders(prog: Any) -> list[str]:
    """drgn gives the dump's path without links: where the user typed it may be elsewhere."""
    found = [os.path.dirname(prog.core_dump_path)] if prog.core_dump_path else []
    with suppress(OSError):  # it was deleted
        found.insert(0, os.getcwd())
    return list(dict.fromkeys(found))


def require(prog: Any) -> None:
    """Raises UserError where vmlinux's debugging information cannot be found."""
    import drgn

    if prepare(prog):  # the plugin is not there, which had drgn look before
        with suppress(drgn.MissingDebugInfoError):  # module_note() says it
            prog.load_debug_info(default=True)
    if not _missing(prog):
        return
    name = release(prog)
    what = f"no debugging information for this kernel, {name or 'of unknown release'}"
    build_id = _build_id(prog)
    raise UserError(
        f"{what}{f' (build-id {build_id})' if build_id else ''}",
        f"{package(name)}; or give it: drgn -c {prog.core_dump_path or 'DUMP'} -s VMLINUX NAME",
    )


def package(name: str) -> str:
    """What to do for the debugging information of a kernel of that release."""
    for pattern, advice in _PACKAGES:
        if re.search(pattern, name):
            return advice.format(release=name)
    return f"install the debugging symbols of kernel {name}".rstrip() + " (its vmlinux, not stripped)"


def release(prog: Any) -> str:
    """As `uname -r` gave it; "" where the dump does not say."""
    try:
        found = re.search(rb"^OSRELEASE=(.*)$", prog["VMCOREINFO"].string_(), re.MULTILINE)
    except (KeyError, LookupError):
        return ""
    return found[1].decode("ascii", "backslashreplace") if found else ""


def module_note(prog: Any) -> list[str]:
    """One line where loaded modules have no debugging information."""
    import drgn

    modules = [module for module in prog.modules() if isinstance(module, drgn.RelocatableModule)]
    names = sorted(module.name for module in modules if module.wants_debug_file())
    if not names:
        return []
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return [
        f"{len(names)} of {len(modules)} modules have no debugging information ({shown}): no lines or types of theirs"
    ]


def _missing(prog: Any) -> bool:
    try:
        return bool(prog.main_module().wants_debug_file())
    except LookupError:
        return True


def _build_id(prog: Any) -> str:
    try:
        found = prog.main_module().build_id
    except LookupError:
        return ""
    return found.hex() if found else ""


def _candidates(module: Any, folders: Sequence[str], name: str) -> Iterator[str]:
    """Few enough to try each."""
    import drgn

    if isinstance(module, drgn.MainModule):
        files = ["vmlinux", "vmlinux.debug"]
        if name and "/" not in name:  # it comes from the dump
            files = [f"vmlinux-{name}", f"vmlinux-{name}.debug", *files]
            # Where Debian's and openSUSE's packages have it, beside the places that drgn knows.
            yield f"/usr/lib/debug/vmlinux-{name}"
            yield f"/usr/lib/debug/boot/vmlinux-{name}.debug"
            yield f"/usr/lib/debug/usr/lib/modules/{name}/vmlinux.debug"
    else:
        stem = os.path.basename(module.name)
        files = [f"{each}.ko{end}" for each in dict.fromkeys((stem, stem.replace("_", "-"))) for end in ("", ".debug")]
    for place in folders:
        for file in files:
            yield os.path.join(place, file)
