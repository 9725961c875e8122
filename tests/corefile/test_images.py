"""The files of a container's image: layers and whiteouts as GNU tar has them, and images that lie."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmods.corefile.images.root import clear_images, kept_images, open_root
from dmods.errors import UserError
from tests.imagekit import PACKERS, content, docker_save, entry, folder, hard, link, oci_layout, packed_layout, tar
from tests.imagekit import unpacked as by_tar
from tests.quick import only

LOWER = [
    folder("usr"), folder("usr/lib"), link("lib", "usr/lib"), entry("usr/lib/a.so", b"a of the lowest"),
    entry("usr/lib/b.so", b"b"), entry("usr/lib/gone.so", b"gone"), hard("usr/lib/c.so", "usr/lib/b.so"),
    folder("opt"), folder("opt/old"), entry("opt/old/1", b"one"), folder("opt/old/deep"),
    entry("opt/old/deep/2", b"two"),
    folder("etc"), entry("etc/kept", b"kept"), folder("srv"), entry("srv/x", b"x"), entry("becomes", b"a file"),
    folder("was"), entry("was/inside", b"inside"),
]  # fmt: skip
UPPER = [
    folder("usr"), folder("usr/lib"), entry("usr/lib/a.so", b"a of the upper"), entry("usr/lib/.wh.gone.so"),
    folder("opt"), folder("opt/old"), entry("opt/old/new", b"new"), entry("opt/old/.wh..wh..opq"), entry(".wh.srv"),
    folder("becomes"), entry("becomes/folder", b"in it"), entry("was", b"now a file"),
    link("abs", "/usr/lib"), link("out", "../../../../etc"), link("usr/lib/d.so", "/lib/./b.so"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def opened(path: Path, asked: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    _folder, image = open_root(str(path))
    assert image is not None
    return {name: content(image.unpacked(name)) for name in asked}, image.notes


def form(where: Path, kind: str, layers: list[bytes]) -> Path:
    if kind == "docker":
        return docker_save(where / "image.tar", layers)
    layout = oci_layout(where / "layout", layers)
    return layout if kind == "layout" else packed_layout(where / "image.tar", layout)


KINDS = ("docker", "layout", "archive")
QUICK = (("docker", "gzip"), ("layout", "zstd"), ("archive", "plain"))


@pytest.mark.parametrize(("kind", "packer"), only(QUICK, itertools.product(KINDS, PACKERS)))
def test_every_file_is_what_gnu_tar_has(kind: str, packer: str, tmp_path: Path) -> None:
    layers = [tar(LOWER), tar(UPPER)]
    truth = by_tar(layers, tmp_path / "truth")
    every = {f"/{path.relative_to(truth)}" for path in truth.rglob("*")}
    every |= {f"/{info.name}" for info, _data in (*LOWER, *UPPER)}
    found, notes = opened(form(tmp_path, kind, [PACKERS[packer](layer) for layer in layers]), sorted(every))
    for name, data in found.items():
        inside = truth / name[1:]
        if not inside.is_symlink():  # GNU tar's links lead out of the folder
            assert data == (inside.read_bytes() if inside.is_file() else None), name
    assert found["/usr/lib/d.so"] == b"b"
    assert notes == []
    more = {"/lib/a.so": b"a of the upper", "/abs/c.so": b"b", "/out/kept": b"kept", "/../../etc/kept": b"kept"}
    assert opened(tmp_path / ("layout" if kind == "layout" else "image.tar"), list(more))[0] == more


def test_only_what_is_asked_for_is_kept_and_for_the_user_alone(tmp_path: Path, cache: Path) -> None:
    image = docker_save(tmp_path / "image.tar", [tar(LOWER)])
    opened(image, ["/lib/a.so", "/lib/nothing"])
    files = [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert [path.read_bytes() for path in files] == [b"a of the lowest"]
    theirs = [cache / "dmods", *(cache / "dmods").iterdir(), *(cache / "dmods/images").iterdir(), *files]
    assert all(path.stat().st_mode & 0o077 == 0 for path in theirs)
    assert [each.source for each in kept_images()] == [str(image)]
    assert clear_images()[0] == 1
    assert not list((cache / "dmods/images").iterdir())


HOSTILE = {
    "a name that leads out": ([entry("../../../../stolen", b"x"), entry("a/../../b", b"x")], "2 names lead out"),
    "a hard link that leads out": ([hard("a", "../../../../etc/passwd")], "hard link to a file that is not there"),
    "a hard link to nothing": ([hard("a", "b")], "hard link to a file that is not there"),
    "a size beyond the end": ([entry("fine", b"fine"), entry("a", size=1 << 40)], "says that it has 1099511627776"),
    "a negative size": ([entry("fine", b"fine"), entry("a", size=-5)], "says that it has -5 bytes|damaged"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_an_image_that_lies(what: str, tmp_path: Path, cache: Path) -> None:
    entries, says = HOSTILE[what]
    before = set(tmp_path.rglob("*"))
    image = docker_save(tmp_path / "image.tar", [tar(entries)])
    found, notes = opened(image, ["/a", "/b", "/stolen", "/etc/passwd", "/fine", "/../stolen"])
    assert len(notes) == 1
    assert any(each in notes[0] for each in says.split("|")), notes
    assert set(found.values()) <= {None, b"fine"}
    made = set(tmp_path.rglob("*")) - before - {image}
    assert all(cache in path.parents or path == cache for path in made)


def test_links_that_lead_out_or_in_a_circle(tmp_path: Path) -> None:
    entries = [
        link("passwd", "/etc/passwd"), link("up", "../../../../../etc/passwd"), link("one", "two"), link("two", "one"),
        link("self", "self"), link("usr", "usr/usr"), link("root", "/"), entry("here", b"here"),
    ]  # fmt: skip
    asked = ["/passwd", "/up", "/one", "/self/x", "/usr/lib", "/root/root/root/here"]
    found, notes = opened(docker_save(tmp_path / "image.tar", [tar(entries)]), asked)
    assert found == {**dict.fromkeys(asked), "/root/root/root/here": b"here"}
    assert notes == []


def test_a_layer_under_a_link_stays_in_the_image(tmp_path: Path) -> None:
    lower = [link("etc", "/../../../tmp"), folder("tmp")]
    found, _notes = opened(docker_save(tmp_path / "i.tar", [tar(lower), tar([entry("etc/x", b"x")])]), ["/tmp/x"])
    assert found == {"/tmp/x": b"x"}


@pytest.mark.parametrize("packer", ["gzip", "zstd"])
def test_a_layer_that_is_a_bomb(packer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMODS_MAX_SIZE", "1M")
    layer = PACKERS[packer](tar([entry("zeros", bytes(8 << 20))]))
    with pytest.raises(UserError, match=r"layer 1 of i.tar is too large to be unpacked: it has more than 1"):
        open_root(str(docker_save(tmp_path / "i.tar", [layer])))


def test_a_file_beyond_the_limit_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = docker_save(tmp_path / "i.tar", [tar([entry("large", bytes(2 << 20)), entry("small", b"s")])])
    monkeypatch.setenv("DMODS_MAX_SIZE", "1M")
    found, notes = opened(image, ["/large", "/small"])
    assert found == {"/large": None, "/small": b"s"}
    assert re.search(r"/large is not used: it has 2\S*M, and 1\S*M may be unpacked \(--max-size\)", notes[0])
    monkeypatch.setenv("DMODS_MAX_SIZE", "1G")  # what was refused is not remembered
    assert opened(image, ["/large"])[0] == {"/large": bytes(2 << 20)}


def test_a_cut_layer_gives_what_is_there(tmp_path: Path) -> None:
    layer = tar([entry("first", b"first"), entry("second", os.urandom(100_000))])
    found, notes = opened(docker_save(tmp_path / "i.tar", [layer[: len(layer) // 2]]), ["/first", "/second"])
    assert found == {"/first": b"first", "/second": None}
    assert "layer 1: second says that it has 100000 bytes, and the tar is shorter" in notes[0]


def test_a_member_of_pax_that_is_huge(tmp_path: Path) -> None:
    """A header that claims 2 GB of names must not be read into memory."""
    pax = entry("x", type=tarfile.XHDTYPE, size=2 << 30)
    found, notes = opened(docker_save(tmp_path / "i.tar", [tar([entry("fine", b"fine"), pax])]), ["/fine"])
    assert found == {"/fine": b"fine"}
    assert len(notes) <= 1


def _two(path: Path) -> Path:
    images = json.dumps([{"RepoTags": ["a:1"], "Layers": []}, {"RepoTags": ["b:2"], "Layers": []}]).encode()
    path.write_bytes(tar([entry("manifest.json", images)]))
    return path


def _without_layer(path: Path) -> Path:
    path.write_bytes(tar([entry("manifest.json", b'[{"RepoTags": null, "Layers": ["../../../etc/passwd"]}]')]))
    return path


def _with(data: bytes) -> bytes:
    return tar([entry("manifest.json", data)])


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (_with(b"{"), "manifest.json is damaged, or is not that of an image"),
        (_with(b"[" * 100_000), "manifest.json is damaged"),
        (_with(b'[{"Layers": 5}]'), "manifest.json is damaged"),
        (_with(b'{"a": 1}'), "manifest.json is damaged"),
        (_with(b"[]"), "has 0 images, and one is needed"),
        (tar([entry("index.json", b'{"manifests": [{"digest": "sha256:../../x"}]}')]), "the digest sha256:../../x"),
        (tar([entry("index.json", b'{"manifests": [{"digest": "sha256:' + b"0" * 64 + b'"}]}')]), "lacks the manifest"),
        (tar([entry("usr/bin/x", b"x")]), "is neither a folder nor the image of a container"),
        (b"\x7fELF" + bytes(100), "is neither a folder nor the image of a container"),
        (b"", "is neither a folder nor the image of a container"),
        (struct.pack("<Q", 0x1F8B0800), "is neither a folder"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_told_in_one_line(made: bytes, says: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "i.tar"
    path.write_bytes(made)
    with pytest.raises(UserError) as error:
        open_root(str(path))
    assert says in error.value.what
    assert "\n" not in error.value.what
    assert not list((cache / "dmods/images").iterdir())


def test_several_images_and_layers_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 2 images \(a:1, b:2\), and one is needed"):
        open_root(str(_two(tmp_path / "two.tar")))
    with pytest.raises(UserError, match=r"lacks the layer ../../../etc/passwd of its image"):
        open_root(str(_without_layer(tmp_path / "one.tar")))
