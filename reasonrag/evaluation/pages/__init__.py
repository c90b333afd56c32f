"""Output of `evaluate`, `ask` and `compare` for people: terminal tables and Markdown."""
