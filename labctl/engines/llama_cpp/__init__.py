"""llama.cpp: its programs of all versions since 2023."""
