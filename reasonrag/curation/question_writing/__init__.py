"""Questions that a teacher writes from a corpus, and what keeps the bad ones out."""
