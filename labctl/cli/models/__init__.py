"""``labctl models``: the lab's models."""
