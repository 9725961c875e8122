"""Why a kernel died: its panic, its log and its modules."""
