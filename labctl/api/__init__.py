"""The Python interface to a lab's runs: the names of ``import labctl``.

Read only. Durations are in ns, sizes in bytes, as in the records.
"""
