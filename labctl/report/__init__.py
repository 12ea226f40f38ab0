"""Tables made from records."""
