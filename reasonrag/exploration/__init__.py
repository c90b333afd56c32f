"""Questions become search trees, and trees a run directory; imports `agent` and the floors below, and knows no pair."""
