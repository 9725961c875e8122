"""What the pointers and the contents of a heap say: types, owners, and growth between cores."""
