"""Whether a critic judges well enough to be offered; trains none."""
