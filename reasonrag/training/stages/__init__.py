"""One training, and several in a row as one command; imports nothing from above training."""
