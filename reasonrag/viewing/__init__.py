"""Runs and data sets to look at: `reasonrag view`, `show` and `stats`; no other room imports it."""
