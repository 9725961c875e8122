"""Go: its goroutines and their stacks."""
