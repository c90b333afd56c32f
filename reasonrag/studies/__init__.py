"""Which configuration to use, and whether the labels can be trusted: calibrate and tune; imports no training."""
