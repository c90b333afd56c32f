"""All knowledge of LLaMA-Factory: its configuration, its environment, its data format and its process."""
