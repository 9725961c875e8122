"""Models of a running system: processes, locks, sockets, files, mounts, devices and counters."""
