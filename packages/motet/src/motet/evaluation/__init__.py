"""Evaluation: how good a team is. It never imports torch.

evaluate            plays held-out tasks and computes the figures of a team
playthrough         the single games of an episode, and their means
pass_at_k           the probability that one of k games succeeds
influence           who is right at each turn of a debate, and who persuades whom
intervals           confidence intervals of rates, and of other means
"""
