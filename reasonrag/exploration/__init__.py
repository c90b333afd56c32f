"""Questions become search trees, and trees a run directory; imports `agent` and below, never `curation`'s callers."""
