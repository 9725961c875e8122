"""The kernel models that the commands share: access to the dump, and knowledge of the kernel's structures."""
