"""One state, one prompt, one reply, one step; imports `llm` and `retrieval` and knows no search tree."""
