"""Passages for a query: indexes, retrievers, rerankers and servers; imports `data` and knows no language model."""
