"""The methods that are compared: our agent and the baselines."""
