"""Equal latency: the model that answers better in the same time."""
