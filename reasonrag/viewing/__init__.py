"""Shows runs and data sets (`reasonrag view`, `show` and `stats`); no other room imports it."""
