"""Gradients and losses that two processes add up, over gloo."""

import torch
from torch import multiprocessing, nn

from motet.models.ranks import Ranks, meeting_store


def work(rank, meet, found):
    ranks = Ranks(rank, 2, meet, 60.0, torch.device("cpu"))
    both, one, none = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    both.grad = torch.tensor([1.0, 2.0]) * (rank + 1)
    if rank == 1:
        one.grad = torch.tensor([5.0, 7.0])
    loss = ranks.add_up([both, one, none], 0.25 + rank)
    found[rank] = (both.grad.tolist(), one.grad.tolist(), none.grad, loss)


def test_every_process_has_the_sums_and_a_weight_that_nobody_used_has_no_gradient():
    store = meeting_store("127.0.0.1")
    meet = f"127.0.0.1:{store.port}"
    with multiprocessing.Manager() as manager:
        found = manager.dict()
        multiprocessing.spawn(work, (meet, found), nprocs=2)
        assert dict(found) == dict.fromkeys((0, 1), ([3.0, 6.0], [5.0, 7.0], None, 1.5))
