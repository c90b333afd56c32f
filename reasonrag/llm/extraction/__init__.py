"""Reading a prompt by its words, for teachers without a language model; it knows no network and no gold answers."""
