"""OpenZFS: pools that are full."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, SERIOUS, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.openzfs import NEARLY_FULL, missing, pools
from drgnext.triage.facts import KernelFacts

_MOST = 0.8  # of the metaslabs
_USED = 0.95  # of the space that writes may use
# OpenZFS keeps back a 32nd of a pool, 128 MB to 128 GB, and no more than half (spa_get_slop_space(), spa_misc.c).
_SLOP_SHIFT, _LEAST_SLOP, _MOST_SLOP = 5, 128 << 20, 128 << 30
_MODULE = "is not loaded in this kernel"


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the pools that are full. Raises CannotCheck without debug information."""
    why = missing(facts.reader)
    if why is not None:
        if _MODULE in why:
            yield Measured("OpenZFS is not loaded")
            return
        raise CannotCheck(why, "drgn -s zfs.ko, with its debug information")
    found = list(pools(facts.reader))
    yield Measured("1 pool" if len(found) == 1 else f"{len(found)} pools")
    for pool in found:
        vdevs = [vdev for vdev in pool.vdevs if vdev.purpose == "data"]
        size, used = sum(vdev.size for vdev in vdevs), sum(vdev.allocated for vdev in vdevs)
        count, full = sum(len(vdev.metaslabs) for vdev in vdevs), sum(vdev.nearly_full for vdev in vdevs)
        slop = min(max(size >> _SLOP_SHIFT, min(size >> 1, _LEAST_SLOP)), _MOST_SLOP)
        if not count or (full < _MOST * count and used < _USED * (size - slop)):
            continue
        yield Finding(
            "zfs-full",
            SERIOUS,
            CERTAIN,
            f"pool {pool.name} is full: {human_size(used)} of {human_size(size)} are used, {human_size(slop)} are kept "
            f"back, and {full} of {count} metaslabs are more than {NEARLY_FULL} % full",
            "writes look for the best fit and get slow: free some space, or add a vdev",
            [Evidence(pool.address, f"struct spa of {pool.name}")],
            (f"zfs -v {pool.name}",),
            weight=used,
            alternative="snapshots hold deleted files: `zfs list -t snapshot` on the machine lists them",
            subject=pool.name,
        )


CHECK = Check(
    "zfs",
    f"95 % of what writes may use of a pool is used, or 80 % of its metaslabs are more than {NEARLY_FULL} % full",
    run,
    seconds=60,
)
