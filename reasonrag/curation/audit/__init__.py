"""The audit of a preference data set before training: checks, statistics, and the page that reports them."""
