"""OpenAI-compatible endpoints of our own: a simulator without a model, and a trained checkpoint."""
