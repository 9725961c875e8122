"""musl's threads: their stacks, on memory of musl's and of the program's, and thread-local memory."""

from __future__ import annotations

import pytest

from dmods.base.words import Words
from dmods.heap.heap import find_heap
from dmods.process.threads import stacks_of
from dmods.process.tls import dtv_blocks
from fixtures import judge, musls

pytestmark = pytest.mark.thorough("it needs musl")


@pytest.mark.parametrize("variant", ["dynamic", "static"])
@pytest.mark.parametrize("release", musls.RELEASES)
def test_the_bounds_of_stacks(release: str, variant: str) -> None:
    """pthread_getattr_np() says where the stack that a thread may use begins and ends. TLS lies above."""
    made = musls.take("muslthreads", release=release, variant=variant)
    target, facts = judge.open_core(made), made.truth.facts
    found = {stack.tid: stack for stack in stacks_of(target, list(find_heap(target).owned))}
    for who in ("usual", "given"):
        stack, low, high = found[facts[f"{who}-tid"]], facts[f"{who}-low"], facts[f"{who}-high"]
        assert stack.known
        assert stack.start <= low < high <= stack.end
        assert stack.end - stack.start - (high - low) < 32 << 10, "a guard, TLS, and values of keys"
    ended = [stack for stack in stacks_of(target, list(find_heap(target).owned)) if stack.tid is None]
    assert len(ended) == 1, "the other one ended on a stack that the program gave"


def test_thread_local_memory_of_modules() -> None:
    made = musls.take("muslthreads")
    target = judge.open_core(made)
    heap, words = find_heap(target), Words(target.image(), 8)
    held = {block.address: block.name for block in made.truth.blocks.values()}
    for thread in target.threads():
        blocks = dtv_blocks(words, target.arch, thread.registers["fs_base"])
        assert len(blocks) == 2, "the program's and the plugin's"
        names = {held.get(words.at(at) or 0, "") for block in blocks for at in range(block, block + 200, 8)}
        assert any(name.endswith("-tls") for name in names)
    assert not heap.notes
