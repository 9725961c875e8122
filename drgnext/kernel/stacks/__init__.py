"""Kernel stacks: tasks, trap frames and unwinders."""
