"""Which configuration to use, and what labels are worth: tune, calibrate; imports no training."""
