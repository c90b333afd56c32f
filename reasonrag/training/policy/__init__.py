"""Policy gradients on the plain steps of runs: rows, loss and command. Imports a trainer in its own process only."""
