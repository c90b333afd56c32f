"""One run on many machines: where a run is made, ranks and their merging; imports no room above, nor any beside it."""
