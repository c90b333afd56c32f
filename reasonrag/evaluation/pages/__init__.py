"""Output of `evaluate`, `ask`, `compare` and `sweep` for people: terminal tables, Markdown and SVG."""
