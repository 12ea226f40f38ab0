"""State of a lab, stored and backed up: decisions of people, and the users of boards.

It cannot be computed from other files.
"""
