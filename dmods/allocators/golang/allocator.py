"""Go's own heap, as dmods finds it."""

from dmods.allocators.golang.heap import NAME, find_go
from dmods.allocators.protocol import Allocator

_ADVICE = "debug.FreeOSMemory() gives free spans back; GOGC and GOMEMLIMIT decide how much Go keeps."

ALLOCATOR = Allocator(NAME, find_go, turn=34, place=34, advice=_ADVICE)
