"""How well an agent answers: many questions by one method, measured and compared; no other room imports it."""
