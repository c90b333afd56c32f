"""Rows to warm a model up with: an agent's steps, made of questions that come with sub-questions and their answers."""
