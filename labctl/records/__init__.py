"""Records of labctl: versioned models of facts, trials and runs, and migration of older ones."""
