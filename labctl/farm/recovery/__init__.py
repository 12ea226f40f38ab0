"""Bringing failing boards back, from the mildest means to the strongest."""
