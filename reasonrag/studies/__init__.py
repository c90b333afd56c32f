"""Which configuration to use, what labels are worth, labels by a student: calibrate, tune; imports no training."""
