"""Judges of answers: of one by itself, and of two beside each other."""
