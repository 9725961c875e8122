"""Find the layers of an image: an OCI image layout (image-layout.md), or what `docker save` writes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any, Optional

from dmods.base.regex import regex
from dmods.corefile.images.store import Section, Store
from dmods.errors import UserError

_MOST_JSON = 16 << 20
_MOST_LAYERS = 512  # overlayfs takes 500
_DIGEST = regex(r"([a-z0-9]+):([0-9a-f]{32,128})")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}
SAVE = "`docker save IMAGE -o image.tar` saves one image; `skopeo copy docker://IMAGE oci-archive:image.tar` as well"


def layers_of(store: Store, path: str) -> Optional[list[tuple[str, Section]]]:
    """Return the layers with their names, the lowest first; None where the files are those of no image.

    Raises UserError for an image that lacks a part, and where there are several images.
    """
    names = _of_docker(store, path)
    if names is None:
        names = _of_layout(store, path)
    if names is None:
        return None
    if len(names) > _MOST_LAYERS:
        raise UserError(f"{path} says that its image has {len(names)} layers", "images have at most a hundred or so")
    found = []
    for name in names:
        section = store.open(name)
        if section is None:
            raise UserError(f"{path} lacks the layer {name[:200]} of its image", f"save it again, whole: {SAVE}")
        found.append((name, section))
    return found


def _of_docker(store: Store, path: str) -> Optional[list[str]]:
    """Return the names of the layers in manifest.json of `docker save`, or None without it."""
    images = _json(store, "manifest.json", path)
    if images is None:
        return None
    if not isinstance(images, list) or not all(isinstance(image, dict) for image in images):
        raise _damaged(path, "manifest.json")
    _check_one(path, [_texts(image.get("RepoTags")) for image in images])
    names = images[0].get("Layers")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _damaged(path, "manifest.json")
    return names


def _of_layout(store: Store, path: str) -> Optional[list[str]]:
    """Return the names of the layers' blobs in an OCI image layout, or None where the store is not such a layout."""
    index = _json(store, "index.json", path)
    if index is None:
        return None
    for _depth in range(4):  # an index may list an index: of several machines
        listed = index.get("manifests") if isinstance(index, dict) else None
        if listed is None:
            break
        chosen = _chosen(listed, path)
        index = _json(store, _blob(chosen, path), path)
        if index is None:
            raise UserError(f"{path} lacks the manifest {str(chosen.get('digest'))[:80]}", f"save it again: {SAVE}")
    layers = index.get("layers") if isinstance(index, dict) else None
    if not isinstance(layers, list):
        raise _damaged(path, "the manifest of the image")
    return [_blob(layer, path) for layer in layers]


def _chosen(listed: Any, path: str) -> Mapping[str, Any]:
    """Return the image of an index: the only one, or the only one for this machine."""
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise _damaged(path, "index.json")

    def machine(each: Mapping[str, Any]) -> object:
        told = each.get("platform")
        return told.get("architecture") if isinstance(told, dict) else None

    images = [each for each in listed if machine(each) != "unknown"]  # attestations of BuildKit
    here = [each for each in images if machine(each) == _MACHINES.get(platform.machine(), platform.machine())]
    if len(images) > 1 and len(here) == 1:
        images = here
    _check_one(path, [_name(each) for each in images])
    found: Mapping[str, Any] = images[0]
    return found


def _name(image: Mapping[str, Any]) -> str:
    told = image.get("annotations")
    name = told.get("org.opencontainers.image.ref.name") if isinstance(told, dict) else None
    return str(name or image.get("digest"))[:80]


def _texts(listed: object) -> str:
    return ", ".join(str(each)[:80] for each in listed[:2]) if isinstance(listed, list) else ""


def _check_one(path: str, names: list[str]) -> None:
    if len(names) != 1:
        listed = f" ({', '.join(filter(None, names[:4]))}{', ...' if len(names) > 4 else ''})" if names else ""
        raise UserError(f"{path} has {len(names)} images{listed}, and one is needed", SAVE)


def _blob(described: object, path: str) -> str:
    digest = described.get("digest") if isinstance(described, dict) else None
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise _damaged(path, f"the digest {str(digest)[:80]}")
    return f"blobs/{found[1]}/{found[2]}"


def _json(store: Store, name: str, path: str) -> Any:
    """Return what is in a JSON file, or None where there is no such file."""
    section = store.open(name)
    if section is None:
        return None
    if section.size > _MOST_JSON:
        raise UserError(f"{path}: {name} has {section.size} bytes, and at most {_MOST_JSON} are read", SAVE)
    try:
        return json.loads(section.at(0, section.size))
    except (ValueError, RecursionError):
        raise _damaged(path, name) from None


def _damaged(path: str, what: str) -> UserError:
    return UserError(f"{path}: {what} is damaged, or is not that of an image", f"save it again: {SAVE}")
