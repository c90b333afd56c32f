"""What HTTP clients share and what servers share; a part of the hall, imports no room."""
