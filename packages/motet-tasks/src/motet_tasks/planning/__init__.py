"""The planning games of AT-GRPO (arXiv 2510.11062) for two agents, and their small versions.

game.py         what the games have in common: agents, turns, prompts, rewards
plan_path.py    Plan-Path; maze.py has its puzzle
sudoku.py       Sudoku; digits.py has its puzzle
sokoban.py      Sokoban; warehouse.py has its puzzle
hidden_goal.py  small versions for the embedded model: only one agent sees the goal
puzzle.py       what a puzzle can do
search.py       cells, moves, breadth-first search
answers.py      how answers are read
"""
