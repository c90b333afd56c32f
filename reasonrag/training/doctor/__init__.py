"""`reasonrag doctor`, which checks, before a GPU hour is paid for, whether this machine can train this model on these
data."""
