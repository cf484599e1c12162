"""Gradients and losses that two processes add up, over gloo."""

import torch
from torch import nn

from motet.models.shards import Ranks, meeting_store
from tests.fork_server import run_ranks


def work(rank, meet, out):
    ranks = Ranks(rank, 2, meet, 60.0, torch.device("cpu"))
    both, one, none = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    both.grad = torch.tensor([1.0, 2.0]) * (rank + 1)
    if rank == 1:
        one.grad = torch.tensor([5.0, 7.0])
    loss = ranks.add_up([both, one, none], 0.25 + rank)
    found = (both.grad.tolist(), one.grad.tolist(), none.grad, loss)
    torch.save(found, out / f"{rank}.pt")


def test_every_process_has_the_sums_and_a_weight_that_nobody_used_has_no_gradient(tmp_path):
    store = meeting_store("127.0.0.1")
    meet = f"127.0.0.1:{store.port}"
    run_ranks(work, meet, tmp_path)
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt") == ([3.0, 6.0], [5.0, 7.0], None, 1.5)
