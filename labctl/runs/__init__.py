"""From a recipe and a board to records that stay."""
