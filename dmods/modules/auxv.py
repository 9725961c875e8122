"""The entries of the auxiliary vector that dmods reads (include/uapi/linux/auxvec.h)."""

AT_PHDR = 3
AT_PHENT = 4
AT_PHNUM = 5
AT_PAGESZ = 6
AT_BASE = 7
AT_ENTRY = 9
AT_RANDOM = 25
AT_EXECFN = 31
AT_SYSINFO_EHDR = 33
AT_MINSIGSTKSZ = 51
