"""One set of caps and rate limits over all ranks of a run: the limiter, its server, and a rank's side of it."""
