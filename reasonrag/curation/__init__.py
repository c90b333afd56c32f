"""Trees become preference data that can be trusted: pairs, labels, audit and review; imports no training."""
