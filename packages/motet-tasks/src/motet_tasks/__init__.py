"""Benchmarks for teams of language models: games with their rewards, for Motet."""
