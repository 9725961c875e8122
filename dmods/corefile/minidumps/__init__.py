"""Minidumps of Linux processes, as plain cores: those of LLDB, Breakpad and Crashpad."""
