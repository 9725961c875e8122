"""The symbols and types that a kernel carries in its own memory (kallsyms and BTF), for dumps without vmlinux."""
