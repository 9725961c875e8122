"""The tools that measure dmods, try it, and write pages of docs from that: scripts/bench, soak, matrix and oracles."""
