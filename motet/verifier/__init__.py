"""Verifiers score answers that have no label: training data, training, scoring and server."""
