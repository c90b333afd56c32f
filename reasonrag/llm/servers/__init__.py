"""OpenAI-compatible endpoints of our own: a simulator without a model, and model folders served while needed."""
