"""An OpenAI-compatible server of our own: model folders, served while they are needed."""
