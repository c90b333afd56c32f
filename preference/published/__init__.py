"""Trees and pairs that others published, read into our records; writes nothing."""
