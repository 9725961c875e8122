"""The allocators that dmods walks, a folder each, and the ones that it can only name."""
