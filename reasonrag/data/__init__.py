"""What the user brings: questions, data sets, corpora and evaluation splits; imports no other room."""
