"""``labctl hdc``: hdc for a person, on labctl's own stack."""
