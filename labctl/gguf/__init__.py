"""GGUF files: what they hold, whether they are whole, and their hash."""
