"""The published experiments' own commands: their configs, in every spelling they have had, become Motet's.

rows            what a row of a table of published keys is
aliases         the table of CoMLRL: each key, where it goes or why it does not; joins and critics: what keys mean together
maporl_aliases  the table of MAPoRL; maporl: what its keys mean together
trainers        each published trainer, and the form of its configs
translate       a published config, layer by layer -> a Motet config that remembers where each value was said
command         experiments/train_*.py
"""
