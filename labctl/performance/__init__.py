"""Relate a number to the board: measured rates, predictions, and bounds of a token's time."""
