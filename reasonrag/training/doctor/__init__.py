"""`reasonrag doctor`: can this machine train this model on these data? Asked before a GPU hour is paid for."""
