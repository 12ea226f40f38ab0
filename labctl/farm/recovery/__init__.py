"""Recovery of failing boards, from the mildest step to the strongest."""
