"""A model's folder, served while it is needed: by vLLM, else by transformers. Imports the hall and `preference`."""
