"""The front end for drgn: every dmods command as ``drgn -c DUMP NAME``, and as ``%NAME`` at drgn's prompt.

It works on kernel dumps and on cores of processes.
"""
