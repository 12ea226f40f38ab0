"""labctl: measure large language models on OpenHarmony edge boards."""
