"""Judging answers where no label is: data for a verifier, its training, its scores, its server."""
