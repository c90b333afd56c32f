"""Can this machine train this model on these data: checks before the first GPU hour is paid."""
