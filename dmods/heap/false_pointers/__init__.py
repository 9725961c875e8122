"""Words among the roots that look like pointers into the heap but hold nothing. `decide.py` is the place that decides.

With 64-bit addresses hardly any number looks like a pointer. In a 32-bit process, and in a static program that is not
position-independent, the heap has addresses that text, sizes and random numbers have, too.
"""
