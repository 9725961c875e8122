"""A live process as a core: it is stopped for a moment, its registers and memory are read, and it runs on."""
