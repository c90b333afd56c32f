"""Policy gradients on the plain steps of runs: rows, loss and command; only a process of its own imports a trainer."""
