"""A run as one file that others can check, import beside their own runs, and reproduce."""
