"""Records of labctl: versioned models of facts, trials and runs."""
