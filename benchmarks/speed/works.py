"""Every row of the comparison: the two sides, the compared quantity, and the required ratio.

Lengths are those of `task.py`: 64 words read and 64 sampled; at turn two 192 read and 64 sampled.
One update per set of prompts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from pace import Job

Program = Literal["motet", "config", "comlrl", "trl"]

LABELS: dict[Program, str] = {"motet": "Motet", "config": "Motet", "comlrl": "comlrl", "trl": "TRL"}
DTYPES: dict[Program, tuple[str, ...]] = {
    "motet": ("float32", "bfloat16"),
    "config": ("bfloat16",),
    "comlrl": ("float32", "bfloat16"),
    "trl": ("float32", "bfloat16", "autocast"),
}
"""How each side can compute on a CPU: "autocast" is float32 under autocast.

Otherwise the weights have that dtype (Motet trains float32 masters of them).
"""


@dataclass(frozen=True)
class Claim:
    """One ratio: theirs over ours, at least `must`; or with `most` ours over theirs, at
    most `must`."""

    what: Literal["step", "update", "memory"]
    """Seconds of the whole step or of its update, or the step's peak of memory."""
    dtype: str
    """The dtype of both sides, or `fastest`: each side in its own, by the measurements."""
    must: float | None = None
    """None if the row is only informative."""
    aim: float | None = None
    most: bool = False

    def holds(self, ratio: float) -> bool | None:
        """Test whether the ratio meets the bound; None if there is no bound."""
        if self.must is None:
            return None
        return ratio <= self.must if self.most else ratio >= self.must


@dataclass(frozen=True)
class Side:
    program: Program
    job: Job
    label: str
    """Name of the side in tables."""

    def in_dtype(self, dtype: str) -> "Side":
        return replace(self, job=replace(self.job, dtype=dtype))


@dataclass(frozen=True)
class Work:
    """Two sides, and the claims about them. `--only` selects rows by `name`."""

    name: str
    title: str
    ours: Side
    theirs: Side
    claims: tuple[Claim, ...]

    @property
    def informs(self) -> bool:
        """True if the row has no bound."""
        return all(claim.must is None for claim in self.claims)

    def variants(self, side: Side) -> list[Side]:
        """Return the side in every dtype that a claim needs."""
        asked: list[str] = []
        for claim in self.claims:
            asked += DTYPES[side.program] if claim.dtype == "fastest" else (claim.dtype,)
        return [side.in_dtype(dtype) for dtype in dict.fromkeys(asked)]


def float32(must: float | None = None, aim: float | None = None) -> Claim:
    return Claim("step", "float32", must, aim)


def fastest(must: float | None = None, aim: float | None = None) -> Claim:
    return Claim("step", "fastest", must, aim)


def against(
    peer: Program, name: str, *claims: Claim, ours: dict[str, Any] | None = None, **job: Any
) -> Work:
    """Compare Motet and a peer at the same job; `ours` are Motet's settings for it."""
    common = Job(**{"model": "6.6M", "dtype": "float32", **job})
    motet = Side("motet", replace(common, settings=ours), LABELS["motet"])
    return Work(name, title(common), motet, Side(peer, common, LABELS[peer]), claims)


def itself(
    name: str, claim: Claim, ours: tuple[str, dict[str, Any]], theirs: tuple[str, dict[str, Any]]
) -> Work:
    """Compare Motet at two jobs. Each job comes with its label."""
    common = {"model": "6.6M", "dtype": claim.dtype}
    sides = [Side("motet", Job(**{**common, **job}), label) for label, job in (ours, theirs)]
    return Work(name, f"{ours[0]} : {theirs[0]}", *sides, (claim,))


def title(job: Job) -> str:
    words = [
        "1 agent" if job.agents == 1 else f"{job.agents} agents",
        f"G {job.group}",
        "1 prompt" if job.prompts == 1 else f"{job.prompts} prompts",
    ]
    words += ["LoRA"] * job.adapters
    words += ["two-turn tree"] * (job.turns == 2) + ["reference KL"] * job.reference_kl
    if job.model != "6.6M":
        words.append("vocabulary 151,936" if job.model == "20M" else job.model)
    return ", ".join(words)


def beside_itself(dtype: str, large: str, small: str) -> Iterator[Work]:
    """Yield rows on how Motet's memory and time grow, for a large and a small model."""

    def time(must: float) -> Claim:
        return Claim("step", dtype, must, most=True)

    four, one = {"agents": 4, "model": small}, {"agents": 1, "model": small}
    copies, shared = {"agents": 4, "model": large}, {"agents": 4, "model": large, "adapters": True}
    memory = Claim("memory", dtype, 0.45, 0.3, most=True)
    yield itself(
        "adapters_memory",
        memory,
        (f"4 adapters on one {large}", shared),
        (f"4 copies of {large}", copies),
    )
    yield itself("agents", time(4.4), ("4 agents", four), ("1 agent", one))
    adapters = [{**job, "adapters": True} for job in (four, one)]
    yield itself(
        "adapters", time(4.0), ("4 adapters on one base", adapters[0]), ("1 adapter", adapters[1])
    )
    yield itself(
        "nodes",
        time(9.9),
        ("72 answers in two turns", {**one, "turns": 2}),
        ("8 answers in one", one),
    )


CLAIMED = (
    against("comlrl", "pair_1", float32(1.4, 2.0), fastest(1.8, 2.5)),
    against("comlrl", "pair_8", float32(2.0, 3.0), fastest(3.5, 5.0), prompts=8),
    against("comlrl", "tree_1", float32(2.0, 4.0), fastest(3.5, 7.0), turns=2),
    against("comlrl", "tree_8", float32(2.5, 4.0), fastest(4.0, 7.0), turns=2, prompts=8),
    against("trl", "solo_4", float32(1.5, 2.0), fastest(2.5, 3.5), agents=1, prompts=4),
    against(
        "comlrl",
        "vocabulary",
        Claim("update", "float32", 8.0, 12.0),
        Claim("memory", "float32", 1.2, most=True),
        agents=1,
        model="20M",
    ),
    *beside_itself("float32", "80M", "6.6M"),
)
"""Rows whose bounds must hold on two CPU cores."""


def _informing() -> Iterator[Work]:
    both = (float32(), fastest())
    for prompts in (1, 8):
        for agents in (1, 2, 4):
            for group in (4, 8):
                if (agents, group) != (2, 8):  # has a claim above
                    name = f"agents{agents}_g{group}_{prompts}"
                    yield against(
                        "comlrl", name, *both, agents=agents, group=group, prompts=prompts
                    )
        yield against("comlrl", f"kl_{prompts}", *both, prompts=prompts, reference_kl=True)
    # TRL adds the KL to the loss
    in_loss = {"algorithm": {"kl": {"kind": "loss", "coefficient": 0.04, "estimator": "k3"}}}
    yield against("trl", "solo_kl_4", *both, agents=1, prompts=4, reference_kl=True, ours=in_loss)


def _on_cuda() -> Iterator[Work]:
    half = Claim("step", "bfloat16")
    # Both sides are on the GPU at once: of the larger model, one agent each fits into 80 GB.
    for size, agents in (("0.5B", 2), ("1.5B", 1)):
        model = f"Qwen2.5-{size}"
        yield against("comlrl", f"comlrl_1_{size}", half, agents=agents, model=model)
        yield against("comlrl", f"comlrl_8_{size}", half, agents=agents, model=model, prompts=8)
        yield against("comlrl", f"tree_1_{size}", half, agents=agents, model=model, turns=2)
        yield against("trl", f"trl_4_{size}", half, agents=1, model=model, prompts=4)
        yield against(
            "trl", f"trl_lora_{size}", half, agents=1, model=model, prompts=8, adapters=True
        )
    for work in beside_itself("bfloat16", "Qwen2.5-0.5B", "Qwen2.5-0.5B"):
        yield replace(
            work, claims=tuple(replace(claim, must=None, aim=None) for claim in work.claims)
        )


WORKS = {"cpu": (*CLAIMED, *_informing()), "cuda": tuple(_on_cuda())}
"""Device -> its rows. The bounds apply to two CPU cores, so on a GPU every row is only
informative."""
