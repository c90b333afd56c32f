"""Which points a sweep has, what they will cost, and the record of what they gave; asks no model and writes no file."""
