"""Games of two players in which one wins what the other loses.

game.py            what all of them share: seats, illegal moves, opponents of the environment
tic_tac_toe.py     nothing is hidden; play without errors ends in a draw
kuhn_poker.py      three cards and one bet: each player knows its own card only
bluff.py           one player says in words which card it holds, the other believes it or not
exploitability.py  how much the best answer to a policy wins, exactly
of_run.py          the same for the team of a run
command.py         `motet exploitability`
"""
