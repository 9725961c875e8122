"""The commands for kernels, one file each. They import drgn only when they run, so that all the world can list them."""
