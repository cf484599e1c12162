"""Evaluation: how good a team is, and what it is compared with. It never imports torch.

evaluate            plays held-out tasks and computes the figures of a team
playthrough         the single games of an episode, and their means
pass_at_k           the probability that one of k games succeeds
influence           who is right at each turn of a debate, and who persuades whom
message_shuffle     wraps an environment: messages of another task, or empty ones
baselines           what a team is compared with: one agent, protocols, best and majority of n
baseline_table      the comparison as a table
protocols           wraps an environment: changes the order in which agents act
budget              how many games a token budget allows
selection           best of n and majority vote, and how often they are right
candidates          answers as candidates, with verifier scores and gold labels
selection_table     how often the answer chosen out of k games is right, as a table
crossplay           the first agent of one team with the other agents of another
rates               confidence intervals of rates, of games that depend on their task
bootstrap           confidence intervals of other means
"""
