"""What the daemons of virtual boards share, whatever protocol they speak."""
