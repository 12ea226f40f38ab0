"""Statistics and physics as pure functions."""
