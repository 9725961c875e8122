"""Language runtimes: what their objects, threads and frames are."""
