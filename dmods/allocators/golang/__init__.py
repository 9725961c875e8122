"""Go's own heap: spans of objects of one size, and the stacks of goroutines between them."""

NAME = "Go"
