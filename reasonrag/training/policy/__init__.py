"""Policy gradients on the plain steps of runs: rows, loss and command. Imports no trainer but in its own process."""
