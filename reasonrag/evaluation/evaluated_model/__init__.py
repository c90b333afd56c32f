"""Whose answers are measured: a model behind an endpoint, or a trained folder served for the time being."""
