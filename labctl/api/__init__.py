"""The Python interface to a lab's runs: the names of ``import labctl``.

It reads only. Durations are ns, sizes bytes, as in the records.
"""
