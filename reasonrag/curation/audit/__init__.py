"""What is wrong with a data set before somebody trains on it: checks, statistics, and the page that reports them."""
