"""`reasonrag doctor`: whether this machine can train this model on these data, before a GPU hour is paid for."""
