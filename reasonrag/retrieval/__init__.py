"""Passages for a query: indexes, retrievers and servers; imports `data` and knows no language model."""
