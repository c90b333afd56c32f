"""A model's folder, served while it is needed, by vLLM or by transformers; imports only the hall and `preference`."""
