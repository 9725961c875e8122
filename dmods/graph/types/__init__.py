"""Say what type each block has: from its contents, its holders, language runtimes and debug information."""
