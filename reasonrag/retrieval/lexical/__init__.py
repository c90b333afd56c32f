"""BM25 over a corpus on disk."""
