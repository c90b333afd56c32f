"""Policy gradients on the plain steps of runs: rows, loss and command; a trainer is imported in its own process only."""
