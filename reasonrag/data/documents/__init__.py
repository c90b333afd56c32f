"""Documents of a folder (Markdown, HTML, plain text, PDF) become the passages of a corpus; imports no other room."""
