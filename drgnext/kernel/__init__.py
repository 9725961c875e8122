"""What the kernel's commands share: the dump, and what its structures mean."""
