"""The checks for processes, one file each. Every module here with a ``CHECK`` is run."""
