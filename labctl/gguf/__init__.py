"""GGUF files: content, completeness and hash."""
