"""The published experiments' own commands: their configs, in every spelling they have had, become Motet's.

aliases     the table: each published key, where it goes or why it does not
translate   a published config, layer by layer -> a Motet config that remembers where each value was said
command     experiments/train_*.py
"""
