"""All that knows LLaMA-Factory: its settings, its environment, its data format and its process."""
