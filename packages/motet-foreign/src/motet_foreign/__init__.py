"""Environments of other packages, played in Motet: one module for each package.

textarena_game     any game of TextArena by its id
verifiers_taskset  a taskset of verifiers, alone or with an env of several roles
openenv_server     a server of OpenEnv
pettingzoo_game    an AEC environment of PettingZoo
for_verifiers      the other way round: an environment of Motet, evaluated by verifiers

boundary   imports the other package, and makes faults of what it raises
seeds      the tasks of games that a seed starts, and the global generators that such games draw
           from
copies     whether a game can be copied
success    from rewards to the success of an episode

The other packages are imported only when their environment is made.
"""
