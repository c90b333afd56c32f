"""The model under evaluation: behind an endpoint, or a trained folder that is served locally."""
