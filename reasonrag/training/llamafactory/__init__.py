"""All knowledge of LLaMA-Factory: its configuration, its data format and its process."""
