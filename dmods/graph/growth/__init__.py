"""Compare the heaps of several cores."""
