"""What a kernel carries of its own debug information (kallsyms and BTF), for dumps without vmlinux."""
