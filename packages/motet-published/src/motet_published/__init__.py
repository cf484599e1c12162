"""Commands of the published experiments: translate their configs, in every spelling, to Motet's.

keys            the kinds of rules in a table of published keys: Renamed, Combined, NoEffect, ...
comlrl_keys     the table of CoMLRL's keys
comlrl          one function for each of CoMLRL's trainers: what several keys mean together
comlrl_models   the same for the keys of agents' and critics' models
benchmarks      the data sets of CoMLRL, and their environments
maporl_keys     the table of MAPoRL's keys; maporl: what several of them mean together
published       merges the layers of a published config, and checks every key against the table
translation     what those functions fill: Motet's config, which knows where each value was set
translate       the published trainers, and how one translates a config
command         experiments/train_*.py
"""
