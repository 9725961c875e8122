"""Who keeps cores on Linux machines: systemd-coredump, apport and abrt. What each knows of the process that died."""

APPORT = "apport"
REPORT = b"ProblemType:"  # the first bytes of a report of apport
