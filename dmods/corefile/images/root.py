"""The image of a container as the root of its processes. What is asked for is unpacked, and kept for later commands."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from functools import cached_property
from typing import Optional

from dmods.base import raw_names
from dmods.base.sizes import human_size
from dmods.corefile import unpacked
from dmods.corefile.images.layers import Entry, Files
from dmods.corefile.images.manifest import SAVE, layers_of
from dmods.corefile.images.store import Folder, Section, Store, Tar, plain
from dmods.errors import UserError

KIND = "images"  # the folder beside the copies of dumps
_MOST_KEPT = 8 << 30  # bytes on the disk of all images' files: the image that was not used for longest goes first
_STEP = 4 << 20
_NOTHING = ""  # in what is remembered: the image has no such file


class ImageRoot:
    """Implements dmods.modules.localfiles.Image.

    ``folder`` gets the files under their own paths in the image, without any link. It also remembers what was asked
    for, so that a later command reads the image only for what is new.
    """

    def __init__(self, path: str, folder: str) -> None:
        self._path, self.folder = path, folder
        self.notes: list[str] = []
        self._about = f"{folder}.json"
        self._asked: dict[str, str] = _remembered(self._about)
        self._written = 0

    def unpacked(self, path: str) -> Optional[str]:
        """Return where the file of that path was unpacked, or None where the image has no such file."""
        known = self._asked.get(path)
        if known is not None and known != _NOTHING and not _is_file(self.folder + known):
            known = None
        if known is None:
            found = self._files.find(path)
            if found is not None and not self._unpack(*found):
                return None  # another time there may be room
            known = self._asked[path] = found[0] if found is not None else _NOTHING
            self._remember()
        return self.folder + known if known != _NOTHING else None

    def said(self) -> list[str]:
        """Return notes: what is wrong with the image, and where its files were unpacked."""
        where = f"{human_size(self._written)} of {self._path} were unpacked into {self.folder}"
        return [*self.notes, *([f"{where}; `dmods cache --clear` removes them"] if self._written else [])]

    @cached_property
    def _layers(self) -> list[tuple[str, Section]]:
        found = _layers(self._path)
        if found is None:
            raise _no_image(self._path)
        name = os.path.basename(os.path.abspath(self._path))
        return [(told, plain(section, f"layer {number} of {name}")) for number, (told, section) in enumerate(found, 1)]

    @cached_property
    def _files(self) -> Files:
        files = Files()
        for number, (_name, section) in enumerate(self._layers):
            files.add(number, section)
        self.notes.extend(f"{self._path}: {note}" for note in files.notes)
        return files

    def _unpack(self, path: str, entry: Entry) -> bool:
        """Write a file of the image to its place in the folder. Return whether it could be done."""
        place, free = self.folder + path, unpacked.room()
        most = unpacked.most_size(entry.size) - self._written
        if entry.size > most or entry.size > free:
            limit = "are free for it" if entry.size > free else "may be unpacked (--max-size)"
            self.notes.append(
                f"{self._path}: {path[:200]} is not used: it has {human_size(entry.size)}, and "
                f"{human_size(min(most, free))} {limit}"
            )
            return False
        section = self._layers[entry.layer][1]
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            with unpacked.new_file(place) as part:
                with open(part, "wb") as file:
                    for offset in range(0, entry.size, _STEP):
                        file.write(section.at(entry.offset + offset, min(_STEP, entry.size - offset)))
                os.utime(part, (max(0.0, min(entry.mtime, 1e11)),) * 2)
                os.rename(part, place)
        except (OSError, ValueError, UserError) as error:
            why = error.what if isinstance(error, UserError) else error
            self.notes.append(f"{self._path}: {path[:200]} cannot be unpacked ({why})"[:400])
            return False
        self._written += entry.size
        return True

    def _remember(self) -> None:
        told = {"source": os.path.abspath(self._path), "asked": self._asked}
        with unpacked.new_file(self._about) as part:
            with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(told, file)
            os.rename(part, self._about)


_open: dict[str, ImageRoot] = {}  # by the folder: several cores of one command have the same image


def open_root(path: Optional[str]) -> tuple[Optional[str], Optional[ImageRoot]]:
    """Return (the sysroot that the user means by a path, the image that fills it or None).

    Raises UserError for a file that is no image.
    """
    if path is None or not (os.path.isfile(path) or _is_layout(path)):
        return path, None
    status = os.stat(os.path.join(path, "index.json") if os.path.isdir(path) else path)
    known = f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
    folder = os.path.join(unpacked.own_folder(KIND), hashlib.sha256(raw_names.key(known)).hexdigest()[:24])
    if folder not in _open:
        image = ImageRoot(path, folder)
        if not os.path.isdir(folder):
            image._layers  # noqa: B018 (a file that is no image is an error before anything is made)
            os.mkdir(folder, 0o700)
            _remove_oldest(folder)
        elif os.path.exists(f"{folder}.json"):
            os.utime(f"{folder}.json")
        _open[folder] = image
    return folder, _open[folder]


def kept_images() -> list[unpacked.Copy]:
    """Return what is kept of images, the one that was used last first. Raises UserError for a folder of others."""
    if not os.path.lexists(unpacked.folder_of_copies(KIND)):
        return []
    found = []
    for entry in os.scandir(unpacked.own_folder(KIND)):
        if entry.is_dir(follow_symlinks=False):
            about = f"{entry.path}.json"
            used = os.lstat(about if os.path.lexists(about) else entry.path).st_mtime
            found.append(unpacked.Copy(entry.path, _source(about), _stored_below(entry.path), used))
    return sorted(found, key=lambda each: -each.used)


def clear_images() -> tuple[int, int]:
    """Remove what is kept of images. Return (of how many, their bytes on the disk)."""
    found = kept_images()
    for each in found:
        _remove(each.path)
    return len(found), sum(each.stored for each in found)


_HOW = f"--sysroot takes a folder with the other machine's files, /proc/PID/root, or an image: {SAVE}"


def _no_image(path: str) -> UserError:
    return UserError(f"{path} is neither a folder nor the image of a container", _HOW)


def _is_layout(folder: str) -> bool:
    return all(os.path.isfile(os.path.join(folder, name)) for name in ("oci-layout", "index.json"))


def _layers(path: str) -> Optional[list[tuple[str, Section]]]:
    store: Store
    if os.path.isdir(path):
        store = Folder(path)
    else:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", _HOW) from None
        store = Tar(plain(Section(descriptor, 0, os.fstat(descriptor).st_size), os.path.basename(path)))
    return layers_of(store, path)


def _remembered(about: str) -> dict[str, str]:
    told = _told(about).get("asked")
    if not isinstance(told, dict):
        return {}
    return {name: text for name, text in told.items() if isinstance(text, str)}


def _source(about: str) -> str:
    return str(_told(about).get("source", "?"))


def _told(about: str) -> dict[str, object]:
    try:
        with open(about, encoding="utf-8", errors="surrogateescape") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _stored_below(folder: str) -> int:
    files = (os.path.join(place, name) for place, _folders, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in files)


def _remove_oldest(but: str) -> None:
    room = _MOST_KEPT
    for each in kept_images():
        room -= each.stored
        if room < 0 and each.path != but:
            _remove(each.path)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(f"{folder}.json"):
        os.unlink(f"{folder}.json")
