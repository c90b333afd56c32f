"""What comes from outside: questions, data sets, corpora, evaluation splits, a vocabulary; imports no other room."""
