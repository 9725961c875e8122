"""The userland commands, one file each; see CONTRIBUTING.md."""
