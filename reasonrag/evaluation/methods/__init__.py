"""The ways of answering that are compared: our agent and the baselines."""
