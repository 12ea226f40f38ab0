"""Builds tools for targets: sources, the local builder, proofs, and the cache of artifacts."""
