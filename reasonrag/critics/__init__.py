"""Critics: process reward models, trained, checked and offered; imports no evaluation, publishing or viewing."""
