"""Make images of containers as docker and skopeo do, and read them with GNU tar, for the tests."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Optional

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda data: subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout,
}


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry of a tar: a regular file, unless ``fields`` say another thing."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=to)


def hard(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE, linkname=to)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=0o755)


def tree(root: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Return the entries for a folder with all that is below it."""
    found = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found.append(link(name, os.readlink(path)))
        elif path.is_dir():
            found.append(folder(name))
        elif path.is_file():
            found.append(entry(name, path.read_bytes(), mode=path.stat().st_mode & 0o777))
    return found


def tar(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return a tar. The size in a header may be a lie."""
    made = io.BytesIO()
    for info, content in entries:
        made.write(info.tobuf(tarfile.GNU_FORMAT))
        made.write(content + b"\0" * (-len(content) % 512))
    return made.getvalue() + b"\0" * 1024


def docker_save(path: Path, layers: Sequence[bytes]) -> Path:
    """Write what `docker save` of an old docker writes: manifest.json, and layers in folders."""
    names = [f"{hashlib.sha256(layer).hexdigest()}{number}/layer.tar" for number, layer in enumerate(layers)]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["shop:1"], "Layers": names}]).encode()
    path.write_bytes(tar([*(entry(*each) for each in zip(names, layers)), entry("manifest.json", manifest)]))
    return path


def oci_layout(path: Path, layers: Sequence[bytes]) -> Path:
    """Make an OCI image layout, with an index of two machines and an attestation."""

    def blob(data: bytes, **more: object) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (path / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (path / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data), **more}

    described = [blob(layer) for layer in layers]
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    image = blob(json.dumps({"layers": described}).encode(), platform={"architecture": here})
    other = blob(json.dumps({"layers": []}).encode(), platform={"architecture": "s390x"})
    attested = blob(json.dumps({"layers": described[:1]}).encode(), platform={"architecture": "unknown"})
    index = blob(json.dumps({"manifests": [other, image, attested]}).encode())
    (path / "index.json").write_text(json.dumps({"manifests": [index]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return path


def packed_layout(path: Path, layout: Path) -> Path:
    """Write the layout into a tar, by GNU tar."""
    subprocess.run(["tar", "-C", layout, "-cf", path, "."], check=True)
    return path


def unpacked(layers: Sequence[bytes], root: Path) -> Path:
    """Unpack plain layers with GNU tar, one over the other, and apply the whiteouts as layer.md says."""
    for number, layer in enumerate(layers):
        alone = root.parent / f"{root.name}-{number}"
        alone.mkdir()
        subprocess.run(["tar", "-C", alone, "-xf", "-"], input=layer, check=True)
        root.mkdir(exist_ok=True)
        for mark in sorted(alone.rglob(".wh.*")):
            inside = root / mark.relative_to(alone).parent
            gone = inside.iterdir() if mark.name == ".wh..wh..opq" else [inside / mark.name[4:]]
            for each in list(gone):
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
            mark.unlink()
        for new in alone.rglob("*"):
            old = root / new.relative_to(alone)
            if old.is_dir() and not old.is_symlink() and not (new.is_dir() and not new.is_symlink()):
                shutil.rmtree(old)
            elif old.is_file() and not old.is_symlink() and new.is_dir():
                old.unlink()
        subprocess.run(f"tar -C {alone} -cf - . | tar -C {root} --keep-directory-symlink -xf -", shell=True, check=True)
    return root


def content(path: Optional[str]) -> Optional[bytes]:
    return Path(path).read_bytes() if path is not None else None
