"""Find, start and share hdc servers of this host."""
