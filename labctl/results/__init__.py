"""Summarise finished trials: estimates, checks, gates and stopping rules, from records alone."""
