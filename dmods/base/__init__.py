"""Parts that all other packages use: sets of ranges, compact rows, cached results, words of memory, progress."""
