"""Other interpreters that commands start; a part of the hall, imports no room."""
