"""Tell which roots hold which blocks, and by which paths."""
