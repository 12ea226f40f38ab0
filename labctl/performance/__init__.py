"""Relate a number to the board: measured rates, predictions, and what bounds a token's time."""
