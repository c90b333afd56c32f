"""How a student is trained by LLaMA-Factory: checked, launched, watched, recorded; imports no evaluation."""
