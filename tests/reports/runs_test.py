"""Reports about runs: the order of data, resuming, samples, groups and rewards."""

import asyncio
import datetime
import decimal
import json
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

import motet
from motet.algorithms import resolve
from motet.api.loaded import LoadedRun
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    Scores,
    Task,
    Team,
    walk,
)
from motet.credit.assign import assign_credit
from motet.errors import CannotResume
from motet.settings import Decode
from tests.reports.small_teams import ROWS, TWO, trained
from tests.reports.tiny_models import plain_logprobs
from tests.small_runs import contents, weights
from tests.small_runs import rows as metrics_of

pytestmark = pytest.mark.wide

EVERY = ("train.checkpoint_every=1", "train.keep_every=1")


def played(run: LoadedRun, step: int) -> list[str]:
    """The rows of a step, in the order of its episodes."""
    return [episode.task.fields["q"] for episode in run.episodes(step=step)]


# ----------------------------------------------------------------------------- data and resuming


def broken_off(whole: Path, folder: Path, step: int, steps: int) -> Path:
    """Copy a finished run, and remove what came after the checkpoint of `step`."""
    part = folder / "runs" / whole.name
    shutil.copytree(whole, part)
    for later in range(step + 1, steps + 1):
        shutil.rmtree(part / "checkpoints" / f"step-{later:06d}")
        (part / "episodes" / f"train-{later:06d}.jsonl").unlink()
    shutil.rmtree(part / "team")
    (part / "summary.json").unlink()
    return part


@pytest.mark.parametrize("how", ["adapter", "all weights in bfloat16"])
def test_a_resumed_run_goes_on_with_the_same_data_rates_and_weights(how, tmp_path, folder):
    """verl-project/verl#3457, NVIDIA-NeMo/RL#3599: a resumed run plays other prompts, skips or
    repeats some. pytorch/pytorch#60265, IntelLabs/distiller#145: its learning rate begins anew.
    TensorAuto/OpenTau#185: the float32 masters are made anew from bfloat16 weights."""
    wide = how == "adapter"
    dtype = "float32" if wide else "bfloat16"
    given = (*EVERY, "optimizer.schedule=linear", f"models.base.dtype={dtype}")
    run = trained(tmp_path / "whole", folder, *given, rows=ROWS[:5], steps=4, full=not wide)
    rates = run.metrics["learn/learning_rate/a"].dropna()
    assert len(rates) == 4
    assert rates.is_monotonic_decreasing
    part = broken_off(run.path, tmp_path / "part", 2, 4)
    motet.train(part / "config.yaml", resume=True, runs=part.parent, show="silent")
    assert json.dumps(metrics_of(part)) == json.dumps(metrics_of(run.path))
    assert contents(part / "episodes") == contents(run.path / "episodes")
    assert contents(part / "team") == contents(run.path / "team")


def test_every_row_is_played_once_per_pass_and_no_last_batch_is_dropped(tmp_path, folder):
    """rllm-org/rllm#870, huggingface/trl#2998: rows that do not fill a batch are dropped in every
    pass."""
    run = trained(tmp_path, folder, rows=ROWS[:5], steps=5, samples=2, tokens=2)
    order = [row for step in range(1, 6) for row in played(run, step)]
    everything = Counter(row["q"] for row in ROWS[:5])
    assert Counter(order[:5]) == Counter(order[5:]) == everything
    assert order[:5] != order[5:]


def test_a_run_is_not_resumed_with_other_rows(tmp_path, folder):
    """NVIDIA-NeMo/RL#2519: a run that is resumed with another dataset skips its first rows without
    a word."""
    run = trained(tmp_path / "whole", folder, *EVERY, steps=3)
    part = broken_off(run.path, tmp_path / "part", 2, 3)
    other = [{"q": f"other {number}"} for number in range(9)]
    same = {"steps": 3, "heldout": ROWS[:1], "resume": True}
    with pytest.raises(CannotResume, match=r"data\.train gives other tasks"):
        trained(tmp_path / "part", folder, *EVERY, rows=other, **same)
    assert not (part / "episodes" / "train-000003.jsonl").exists()
    trained(tmp_path / "part", folder, *EVERY, **same)
    assert weights(part) == weights(run.path)


def test_epochs_learn_several_times_from_one_set_of_samples(tmp_path, folder):
    """huggingface/trl#4531, tenstorrent/tt-blacksmith#731: with num_iterations > 1 every update has
    prompts or samples of its own, so none is reused."""
    several = ("algorithm.policy_loss=clipped_surrogate", "algorithm.epochs=3")
    run = trained(tmp_path, folder, *several, steps=1)
    once = trained(tmp_path, folder, several[0], steps=1, name="once")
    assert list(run.samples(step=1).tokens) == list(once.samples(step=1).tokens)
    assert len(list((run.path / "episodes").glob("train-*"))) == 1
    assert once.metrics.loc[1, "learn/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert abs(run.metrics.loc[1, "learn/approx_kl"]) > 1e-6, "later updates see moved weights"
    facts = [
        json.loads(line)
        for line in (run.path / "metrics.jsonl").read_text().splitlines()
        if "learn/ratio" in line
    ]
    assert len(facts) == 1


# -------------------------------------------------------------------------------------- samples


def test_no_two_samples_share_their_random_numbers(tmp_path, folder):
    """NVIDIA-NeMo/RL#171, modelscope/ms-swift#7858: engines or workers with one seed return the
    same completions, so a group has copies."""
    same = [{"q": "hi", "id": str(number)} for number in range(4)]
    agents = {"a": lambda row: row["q"], "b": lambda row: row["q"]}
    run = trained(
        tmp_path, folder, "train.tasks_per_step=4", "optimizer.learning_rate=1e-30",
        rows=same, agents=agents, samples=4, tokens=8, steps=2,
    )  # fmt: skip
    drawn = [tuple(t) for step in (1, 2) for t in run.samples(step=step).tokens]
    assert len(drawn) == 2 * 4 * 2 * 4
    assert len(set(drawn)) == len(drawn)


def test_the_seed_decides_the_samples_and_the_order_of_rows(tmp_path, folder):
    """huggingface/trl#7040: the seed never reaches the sampler, so two runs with different seeds
    have the same completions."""
    runs = [
        trained(tmp_path, folder, f"seed={seed}", name=name, rows=ROWS)
        for seed, name in ((0, "x"), (0, "y"), (1, "z"))
    ]
    first, again, other = ([tuple(t) for t in run.samples(step=1).tokens] for run in runs)
    assert first == again
    assert not set(first) & set(other)
    assert len({tuple(played(run, 1)) for run in runs}) == 2


def test_an_evaluation_has_the_temperature_of_the_config_and_changes_nothing(tmp_path, folder):
    """thinking-machines-lab/tinker-cookbook#724: evaluations are sampled at a temperature of their
    own. (Nor may they take random numbers from training.)"""
    warm = "decode.temperature=0.7"
    plain = trained(tmp_path, folder, warm, steps=3, name="plain")
    watched = trained(tmp_path, folder, warm, "evaluation.every=1", steps=3, name="watched")
    for episode in watched.episodes("evaluate", step=1):
        assert {one.temperature for one in episode.root.samples["a"]} == {0.7}
    for step in (1, 2, 3):
        assert list(plain.samples(step=step).tokens) == list(watched.samples(step=step).tokens)
    assert weights(plain.path) == weights(watched.path)
    assert len(list(watched.episodes("evaluate"))) > len(list(plain.episodes("evaluate")))


def test_the_sampler_has_the_weights_of_the_last_update(pair):
    """verl-project/verl#7495, huggingface/trl#5312, NovaSky-AI/SkyRL#1776: trained adapters never
    reach the sampler, which goes on with the first policy."""
    assert pair.metrics.loc[1:3, "learn/sampling_logp_difference"].max() < 1e-4
    versions = [
        {one.version for e in pair.episodes(step=step) for one in e.root.samples["a"]}
        for step in (1, 2, 3)
    ]
    assert versions == [{0}, {1}, {2}]
    last = pair.model("a", device="cpu")  # one update later than what played step 3
    base = last.get_base_model() if hasattr(last, "get_base_model") else last
    episode = next(pair.episodes(step=3))
    prompt, one = episode.root.prompt_tokens["a"], episode.root.samples["a"][0]
    with last.disable_adapter():
        first = plain_logprobs(base, prompt, one.tokens, 0.7)
    assert max(abs(x - y) for x, y in zip(first, one.logprobs, strict=True)) > 0.01


# -------------------------------------------------------------------------------------- rewards


def test_an_async_reward_belongs_to_its_own_texts_and_is_asked_once(tmp_path, folder):
    """verl-project/verl#5076, unslothai/unsloth-zoo#832: a reward that is `async def` is not
    awaited. verl-project/verl#4014: every reward is computed twice."""
    asked: list[tuple[str, str]] = []

    async def late(row: Mapping[str, str], said: Mapping[str, str]) -> float:
        asked.append((row["q"], said["a"]))
        await asyncio.sleep(0.001 * (7 - len(asked) % 8))  # the last asked is the first done
        return float(sum(said["a"].encode()) % 97)

    run = trained(tmp_path, folder, reward=late, heldout=ROWS[5:], rows=ROWS[:4])
    samples = run.samples(step=1)
    assert len(samples) == 8
    for text, reward in zip(samples.text, samples.reward, strict=True):
        assert reward == sum(text.encode()) % 97
    trained_on = Counter(
        (episode.task.fields["q"], one.text)
        for episode in run.episodes(step=1)
        for one in episode.root.samples["a"]
    )
    assert Counter(pair for pair in asked if pair[0] != ROWS[5]["q"]) == trained_on


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, "1.0"])
def test_a_reward_that_is_no_number_is_a_fault_and_never_zero(odd, tmp_path, folder):
    """modelscope/ms-swift#8123, huggingface/trl#5775, Tencent-Hunyuan/UniRL#330: None or NaN from a
    reward counts as 0, or makes all advantages of the batch NaN."""
    count = iter(range(100))

    def reward(row: Mapping[str, str], said: Mapping[str, str]) -> object:
        return odd if row["q"] != "sand" and next(count) % 4 == 0 else 5.0 + len(said["a"])

    run = trained(tmp_path, folder, reward=reward, rows=ROWS, heldout=[{"q": "sand"}])
    faults = [
        outcome.fault.where
        for episode in run.episodes(step=1)
        for _, round_ in walk(episode.root)
        for outcome in round_.outcomes
        if outcome.fault
    ]
    assert faults == ["reward"] * 2
    learned = run.samples(step=1).dropna(subset=["reward"])
    assert len(learned) == 6
    assert learned.reward.min() >= 5.0
    assert np.isfinite(learned.advantage.astype(float)).all()
    saved = load(weights(run.path)["a/adapter_model.safetensors"])
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())


# ------------------------------------------------------------------------------------- groups


def test_completions_are_compared_within_their_own_prompt(tmp_path, folder):
    """microsoft/agent-lightning#489, XU-YIJIE/grpo-flat#2: completions of
    different prompts are normalised together."""

    def reward(row: Mapping[str, str], said: Mapping[str, str]) -> float:
        return 1000.0 * len(row["q"]) + len(said["a"])

    run = trained(
        tmp_path, folder, "algorithm.scale=std", reward=reward, rows=[{"q": "x"}, {"q": "yyyy"}],
        agents=TWO, samples=4,
    )  # fmt: skip
    groups = defaultdict(list)
    for row in run.samples(step=1).itertuples():
        groups[row.episode, row.agent].append((row.reward, row.advantage))
    assert len(groups) == 4
    for group in groups.values():
        rewards, advantages = np.array(group).T
        others = (rewards.sum() - rewards) / 3
        spread = rewards.std() or 1.0
        assert np.ptp(rewards) < 100
        assert advantages == pytest.approx((rewards - others) / spread, abs=1e-6)


def advantages(rewards: list[float], baseline: str, scale: str) -> list[float]:
    """Return the advantages of one group of completions with these rewards."""
    completions = tuple(
        Completion("p", str(n), "stop", tokens=(n,), logprobs=(-1.0,)) for n in range(len(rewards))
    )
    outcomes = tuple(
        Outcome({"a": n}, {"a": reward}, {"success": 0.0}, end="done")
        for n, reward in enumerate(rewards)
    )
    root = Round(0, {"a": "?"}, {"a": (1,)}, {"a": completions}, outcomes)
    algorithm = resolve("magrpo", {"baseline": baseline, "scale": scale})
    team = Team({"a": ("p",)}, {"a": Decode()})
    episode = Episode("e", Task("e", {}), root)
    credit = assign_credit([episode], Scores(), algorithm, CreditState(), team, 1)
    return [sample.advantage for sample in credit.samples]


@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
@pytest.mark.parametrize("reward", [0.0, 0.35, 0.1, 1e6 + 0.1])
def test_equal_rewards_have_no_advantage(reward, baseline):
    """Tencent-Hunyuan/UniRL#335, ray-project/ray#846: dividing by the deviation of equal rewards
    gives NaN, or magnifies what rounding leaves."""
    found = advantages([reward] * 8, baseline, "std")
    assert max(map(abs, found)) < 1e-6


def test_one_other_reward_in_a_group_is_not_magnified():
    """NVIDIA-NeMo/RL#4161: 7 rewards of .35 and one of .95: the deviation of the other seven is
    what rounding leaves, and the one is divided by it. NVIDIA-NeMo/RL#3469: leaving one out splits
    such a group into rewards with and without a deviation."""
    found = advantages([0.95] + [0.35] * 7, "leave_one_out", "std")
    spread = 0.6 * math.sqrt(7) / 8  # of all eight
    assert found[0] == pytest.approx(0.6 / spread)
    assert found[1:] == pytest.approx([-0.6 / 7 / spread] * 7)


def test_the_divergence_in_the_reward_changes_the_returns(tmp_path, folder):
    """THUDM/slime#397, Jiayi-Pan/TinyZero#67: with a group baseline the KL penalty of the reward
    is computed and then not used."""
    kl = ("algorithm.kl_in=reward", "algorithm.kl_coefficient=0.5", "optimizer.learning_rate=0.1")
    run = trained(tmp_path, folder, *kl, steps=2)
    samples = run.samples(step=2)
    by_episode = defaultdict(list)
    base = run.model("a", device="cpu")
    for episode in run.episodes(step=2):
        for place, one in enumerate(episode.root.samples["a"]):
            with base.disable_adapter():
                reference = plain_logprobs(base, episode.root.prompt_tokens["a"], one.tokens)
            reward = episode.root.outcomes[place].rewards["a"]
            by_episode[episode.id].append(reward - 0.5 * (sum(one.logprobs) - sum(reference)))
    returns = np.array(list(by_episode.values())).flatten()
    assert run.metrics.loc[2, "credit/return"] == pytest.approx(returns.mean(), rel=1e-4)
    assert np.abs(samples.reward.to_numpy() - returns).max() > 0.05


def test_the_lengths_that_are_logged_count_every_token(tmp_path, folder):
    """huggingface/trl#3476: logged lengths leave out completions that were cut, or count 0.
    bingreeky/MemGen#33: what follows an end counts, so all completions are as long as the longest.
    """
    run = trained(tmp_path, folder, tokens=4, samples=8)
    samples = run.samples(step=1)
    lengths = [len(tokens) for tokens in samples.tokens]
    assert "length" in set(samples.stop)
    assert run.metrics.loc[1, "play/completion_length"] == pytest.approx(np.mean(lengths))
    assert run.metrics.loc[1, "play/tokens"] == sum(lengths)
    assert run.metrics.loc[1, "play/truncated"] == np.mean(samples.stop == "length")


# ---------------------------------------------------------------------------------------- rows


ODD = {
    "null": [None, "x", None, "y"],
    "date": [datetime.date(2024, 1, day) for day in (1, 2, 3, 4)],
    "decimal": [decimal.Decimal("1.5")] * 4,
    "bytes": [b"\x00\xff"] * 4,
    "nan": [1.0, math.nan, 2.0, 3.0],
    "list": [[1, 2], [], None, [3]],
    "struct": [{"a": 1}, {"a": None}, {"a": 2}, {"a": 3}],
    "bigint": [2**63 - 1] * 4,
}


def test_a_column_that_nobody_uses_does_not_end_a_run(tmp_path, folder):
    """huggingface/dataset-viewer#67, e2b-dev/E2B#560, huggingface/datasets#7963: NaN, dates,
    decimals or bytes of a dataset cannot be written as JSON, so a run ends when it records them."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    words = {"q": ["hi", "ho", "ha", "he"]}
    parquet.write_table(pyarrow.table({**words, **ODD}), tmp_path / "odd.parquet")
    file = str(tmp_path / "odd.parquet")
    run = trained(tmp_path, folder, rows=file, heldout=[{"q": "x"}], tokens=2, samples=2)
    assert len(played(run, 1)) == 2
    rows = [{"q": word, "k": np.int64(n), "v": np.arange(n), 7: n} for n, word in enumerate("abc")]
    again = trained(tmp_path, folder, rows=rows, tokens=2, samples=2, name="numpy")
    assert set(played(again, 1)) < set("abc")


def test_rows_that_are_equal_and_rows_that_are_played_twice_are_tasks_of_their_own(
    tmp_path, folder
):
    """PrimeIntellect-ai/verifiers#456, PrimeIntellect-ai/verifiers#108, rllm-org/rllm#605: equal
    rows or ids, or a row that is played twice in a step, are taken for one task."""
    twins = [{"q": "hi"}, {"q": "hi"}, {"q": "ho", "id": "x"}, {"q": "ha", "id": "x"}]
    run = trained(
        tmp_path, folder, "train.tasks_per_step=9", "evaluation.samples=2", rows=twins,
        heldout=twins, tokens=2, samples=2, steps=2,
    )  # fmt: skip
    for step in (1, 2):
        episodes = list(run.episodes(step=step))
        assert len({episode.id for episode in episodes}) == len(episodes) == 9
        assert len({episode.task.id for episode in episodes}) == 4
    assert len(list(run.episodes("evaluate", step=2))) == 4


def test_each_agent_learns_from_the_reward_that_was_returned_for_it(tmp_path, folder):
    """microsoft/agent-lightning#282: all agents of a team get the same credit, so rewards of
    opposite signs cancel."""

    def reward(row: Mapping[str, str], said: Mapping[str, str]) -> dict[str, float]:
        longer = float(len(said["a"]) - len(said["b"]))
        return {"a": longer, "b": -longer}

    run = trained(tmp_path, folder, reward=reward, agents=TWO, samples=4)
    for episode, group in run.samples(step=1).groupby("episode"):
        assert group.reward.abs().max() > 0.0, episode
        for agent in TWO:
            own = group[group.agent == agent]
            others = (own.reward.sum() - own.reward) / 3
            assert own.advantage.to_list() == pytest.approx((own.reward - others).to_list())
