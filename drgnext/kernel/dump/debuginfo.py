"""The kernel's debug information: where drgn does not look by itself, and what to install if it is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dmods.corefile.unpacked import source_of
from dmods.errors import UserError
from drgnext.dump_path import dump_path
from drgnext.kernel.dump.given_files import given_files, own_files
from drgnext.kernel.dump.own_types import carried
from drgnext.kernel.dump.own_types.files import kind_of

if TYPE_CHECKING:
    from drgn import Module, Program


_FINDER = "dmods"
_CARRIED = "dmods-carried"
# (pattern of a distribution's releases, how to get vmlinux with debug information there). The commands are from the
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


def prepare(prog: Program) -> bool:
    """Add the places where drgn does not look for vmlinux and modules. Return False if it was done before.

    The places are the current directory, the directory of the dump, and packages unpacked there (`dpkg -x`). drgn
    compares build-ids.
    """
    if _FINDER in prog.registered_debug_info_finders():
        return False
    folders = _folders(prog)
    unpacked = [path for folder in folders if os.path.isdir(path := os.path.join(folder, "usr", "lib", "debug"))]
    options = prog.debug_info_options
    options.directories = (*options.directories, *(path for path in unpacked if path not in options.directories))

    def find(modules: Sequence[Module]) -> None:
        """Give the modules the files that exist among their candidates."""
        for module in modules:
            for path in _candidates(module, folders, release(prog)):
                if module.wants_debug_file() and os.path.isfile(path):
                    module.try_file(path)

    # This comes after drgn's own search of local files and before any download.
    enabled = prog.enabled_debug_info_finders()
    place = enabled.index("standard") + 1 if "standard" in enabled else 0
    prog.register_debug_info_finder(_FINDER, find, enable_index=place)
    # What the kernel carries is less than what any file has.
    prog.register_debug_info_finder(
        _CARRIED, lambda modules: carried.give(prog, modules, release(prog), own_files()), enable_index=-1
    )
    return True


def short_note(prog: Program) -> list[str]:
    """Return one short line if vmlinux, or the files of modules, are not here; else []. `doctor` has the details."""
    if carried.stands_for_vmlinux(prog):
        found = carried.outcome(prog)
        whose = "the kernel's own" if found.symbols is None and found.types is None else "of other files"
        return [f"there is no vmlinux: symbols and types are {whose} (see doctor)"]
    lacking, modules = _without_files(prog)
    return [f"{len(lacking)} of {len(modules)} modules have no debugging information (see doctor)"] if lacking else []


def carried_note(prog: Program) -> list[str]:
    """Return lines if the kernel's own symbols and types, or the user's files, stand for vmlinux; else []."""
    if not carried.stands_for_vmlinux(prog):
        return []
    found = carried.outcome(prog)
    lines = [
        f"there is no vmlinux: {carried_from(found)}, without source lines and inlined functions; "
        f"for these: {package(release(prog))}"
    ]
    names = found.untyped
    if names:
        lines.append(
            f"{len(names)} of {len(found.modules)} modules carry no types ({few(names)}): their own structures are "
            "missing; for these: -s MODULE.ko, with debug information"
        )
    return lines


def carried_from(found: carried.Outcome) -> str:
    """Return where symbols and types come from, as a sentence."""
    if found.symbols is None and found.types is None:
        return "symbols and types are those that the kernel carries (kallsyms, BTF)"
    symbols = f"of {found.symbols}" if found.symbols is not None else "that the kernel carries (kallsyms)"
    types = f"of {found.types}" if found.types is not None else "that the kernel carries (BTF)"
    return f"symbols are those {symbols}, types those {types}"


def few(names: Sequence[str]) -> str:
    """Return the first names of a list."""
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _folders(prog: Program) -> list[str]:
    """Return the current directory and that of the dump.

    drgn gives the dump's path with links resolved, so the current directory may be another one.
    """
    dump = dump_path(prog)
    found = list(dict.fromkeys(map(os.path.dirname, (source_of(dump), dump)))) if dump else []
    with suppress(OSError):  # the current directory was deleted
        found.insert(0, os.getcwd())
    return list(dict.fromkeys(found))


def load(prog: Program, new_files: bool = False) -> None:
    """Look for debug information where drgn has not looked yet: without the plugin, or with new files of the user's."""
    import drgn

    if not prepare(prog) and not (new_files and missing(prog)):
        return
    paths = [path for path in given_files() if kind_of(path) is None and os.path.isfile(path)] if new_files else []
    with suppress(drgn.MissingDebugInfoError):  # module_note() reports it
        prog.load_debug_info(paths, default=True)


def require(prog: Program, wrong: Sequence[str] = ()) -> None:
    """Raise UserError if the debug information of vmlinux cannot be found.

    ``wrong`` says which of the user's files are not used. It is a part of the error.
    """
    load(prog)
    if not missing(prog):
        return
    name = release(prog)
    what = f"no debugging information for this kernel, {name or 'of unknown release'}"
    build_id = _build_id(prog)
    reason = carried.outcome(prog).reason
    what = f"{what}{f' (build-id {build_id})' if build_id else ''}"
    what = f"{what}{f', and its own is of no use: {reason}' if reason else ''}"
    raise UserError(
        "; ".join((*wrong, what)),
        f"{package(name)}; or name the file: drgn -c {dump_path(prog) or 'DUMP'} -s VMLINUX NAME",
    )


def package(name: str) -> str:
    """Return the advice on how to get the debug information of a kernel of that release."""
    for pattern, advice in _PACKAGES:
        if re.search(pattern, name):
            return advice.format(release=name)
    return f"install the debugging symbols of kernel {name}".rstrip() + " (its vmlinux, not stripped)"


def release(prog: Program) -> str:
    """Return the release as `uname -r` prints it, or "" if the dump does not have it."""
    try:
        found = re.search(rb"^OSRELEASE=(.*)$", prog["VMCOREINFO"].string_(), re.MULTILINE)
    except (KeyError, LookupError):
        return ""
    return found[1].decode("ascii", "backslashreplace") if found else ""


def module_note(prog: Program) -> list[str]:
    """Return one line if loaded modules have no debug information, else []."""
    names, modules = _without_files(prog)
    if not names:
        return []
    return [
        f"{len(names)} of {len(modules)} modules have no debugging information ({few(names)}): "
        "lines and types are missing"
    ]


def _without_files(prog: Program) -> tuple[list[str], list[Module]]:
    """Return the names of the loaded modules without debug information, and all loaded modules."""
    import drgn

    modules = [module for module in prog.modules() if isinstance(module, drgn.RelocatableModule)]
    return sorted(module.name for module in modules if module.wants_debug_file()), list(modules)


def missing(prog: Program) -> bool:
    """Return whether vmlinux has no debug information yet."""
    try:
        return bool(prog.main_module().wants_debug_file())
    except LookupError:
        return True


def _build_id(prog: Program) -> str:
    """Return the build-id of vmlinux in hex, or ""."""
    try:
        found = prog.main_module().build_id
    except LookupError:
        return ""
    return found.hex() if found else ""


def _candidates(module: Module, folders: Sequence[str], name: str) -> Iterator[str]:
    """Yield the paths that may have the debug information of a module. They are few enough to try each."""
    import drgn

    if isinstance(module, drgn.MainModule):
        files = ["vmlinux", "vmlinux.debug"]
        if name and "/" not in name:  # the name comes from the dump
            files = [f"vmlinux-{name}", f"vmlinux-{name}.debug", *files]
            # Debian's and openSUSE's packages use these paths, which drgn does not know.
            yield f"/usr/lib/debug/vmlinux-{name}"
            yield f"/usr/lib/debug/boot/vmlinux-{name}.debug"
            yield f"/usr/lib/debug/usr/lib/modules/{name}/vmlinux.debug"
    else:
        stem = os.path.basename(module.name)
        files = [f"{each}.ko{end}" for each in dict.fromkeys((stem, stem.replace("_", "-"))) for end in ("", ".debug")]
    for place in folders:
        for file in files:
            yield os.path.join(place, file)
