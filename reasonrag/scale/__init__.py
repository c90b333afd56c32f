"""One run on many machines: Ray, which starts its ranks, and their merge; imports no room above, nor any beside it."""
