"""The slab allocator: caches, objects, leaks, and who allocated what."""
