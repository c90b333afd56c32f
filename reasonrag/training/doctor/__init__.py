"""`reasonrag doctor`: can this machine train this model on these data? Checks before the first GPU hour is paid."""
