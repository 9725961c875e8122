"""musl's malloc (mallocng, since musl 1.2.1): find it by shape, and read its groups.

Its layout depends on the size of a word alone. No version and no symbol is looked up: a context is believed because
its secret begins every area of its metas, and because the groups of the metas point back to them.
"""

NAME = "musl's malloc"
