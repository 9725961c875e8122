"""The commands for kernels, one file each.

They import drgn only when they run, so that they can be listed where drgn is not installed.
"""
