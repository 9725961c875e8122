"""What measures dmods, tries it, and writes pages of docs from that: scripts/bench, soak, matrix and oracles."""
