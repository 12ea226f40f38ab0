"""State of a lab, stored and backed up: people's decisions, and who uses which board.

It cannot be computed from other files.
"""
