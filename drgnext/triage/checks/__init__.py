"""The checks for kernels, one file each. Every module here with a ``CHECK`` is run."""
