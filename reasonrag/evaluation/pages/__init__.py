"""Output of `evaluate` and `compare` for people: terminal tables and Markdown."""
