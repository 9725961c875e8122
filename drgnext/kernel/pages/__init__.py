"""The page array of a kernel and its lists of pages."""
