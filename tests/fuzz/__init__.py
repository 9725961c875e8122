"""Damage real cores, on purpose and at random. Every command must end with an answer or a UserError.

* ``fields`` names every place of a core that dmods reads, and says where in the file it is.
* ``recipes`` makes damage from a seed and applies it. A recipe is small and means the same on another machine.
* ``worker`` is the process in which all commands run on a damaged core, with its memory limited.
* ``python -m tests.fuzz`` (``scripts/fuzz``) drives workers for the wanted time.
"""
