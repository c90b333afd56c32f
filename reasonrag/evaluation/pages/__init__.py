"""What `evaluate` and `compare` show: terminal tables, Markdown and HTML."""
