"""A run as one file that others can check, keep beside their own runs, and make again."""
