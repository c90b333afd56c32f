"""Dense indexes: encoders, vectors, faiss, and the manifest that says how one was built."""
