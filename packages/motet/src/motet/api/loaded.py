"""load_run: a run folder as Python objects: metrics, episodes, the team and its models."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from motet.api.objects import Objects
from motet.api.recorded import COLUMNS, recorded_advantages, sample_rows
from motet.api.setup import (
    ConfigLike,
    Show,
    models_of,
    read_config,
    recorded_config,
    run_folder,
    run_of,
    setup_in_scratch,
)
from motet.api.summary import RunSummary, read_summary
from motet.assembly.models import LocalModels
from motet.assembly.task_setup import TaskSetup
from motet.config.schema import RecordedConfig, RunConfig
from motet.config.sections import ModelConfig
from motet.core import Environment, Episode, Fault, Prompt, Sampler, SampleRequest, Task
from motet.core.seeding import derive
from motet.errors import ConfigError, SamplerFault
from motet.evaluation.evaluate import evaluate as play_all
from motet.models.answer_probabilities import answer_probabilities
from motet.models.chat_template import tokenizer_with
from motet.models.compute import DTYPES
from motet.models.devices import resolve_device
from motet.models.loading import load_model
from motet.rollout.person import PersonSampler
from motet.rollout.record import read_episodes
from motet.trainer.metrics import read_metrics
from motet.trainer.model_folders import check_seal
from motet.trainer.run_folder import RunFolder
from motet.user_code.blocking import blocking
from motet.user_code.libraries import need
from motet.user_code.looking import looking
from motet.user_code.plugins import nearest
from motet.user_code.timeouts import run_loop

if TYPE_CHECKING:
    from pandas import DataFrame


def load_run(path: str | Path) -> "LoadedRun":
    """Return the run in a folder such as runs/quickstart. Nothing is read before it is asked for.

    Raises: ConfigError if the folder is not that of a run.
    """
    return LoadedRun(run_folder(path).path)


def load_team(
    target: ConfigLike, overrides: Sequence[str] = (), **objects: Unpack[Objects]
) -> "LoadedTeam":
    """Load the trained team of a run folder, a checkpoint or an exported folder, or the team that a
    config starts with.

    Close it, or use it in `with`. `objects` replace what its config names, as in `train`.

    Raises: ConfigError if the folder has no team.
    """
    team = LoadedTeam(read_config(target, overrides, **objects), run_of(target))
    team.load()
    return team


class LoadedRun:
    """A run folder. `path` is its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = RunFolder(path)

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Show the held-out results in a notebook, or that there is no summary yet."""
        try:
            summary = read_summary(self._folder)
        except ConfigError:
            return f"<code>{escape(repr(self))}</code>: its summary.json cannot be shown"
        if summary is None:
            return f"<code>{escape(repr(self))}</code>: no summary.json yet"
        return summary._repr_html_()

    @property
    def config(self) -> RecordedConfig:
        """The complete config. Nothing that it names is loaded; `train` and `read_config` take it,
        and load it."""
        return recorded_config(self.path)

    @property
    def summary(self) -> RunSummary:
        """What `train` returned. Raises: ConfigError if the run is not finished."""
        found = read_summary(self._folder)
        if found is None:
            raise ConfigError(
                f"{self.path} has no summary.json: the run is not finished; finish it with motet "
                f"train {self._folder.config} --resume"
            )
        return found

    @property
    def metrics(self) -> "DataFrame":
        """One row per step, and one column per metric of docs/metrics.md. Step 0 has the evaluation
        before training. A metric that was not measured at a step is NaN."""
        need("pandas", "a table of metrics")
        from pandas import DataFrame  # takes half a second to import

        steps: dict[int, dict[str, Any]] = {}
        for row in read_metrics(self._folder.metrics):
            steps.setdefault(row["step"], {}).update(row)
        ordered = [steps[step] for step in sorted(steps)]
        return DataFrame(ordered, columns=_columns(ordered)).set_index("step")

    @property
    def warmup(self) -> "DataFrame":
        """One row per step of the warm-up, with the loss of each model. It may be empty."""
        need("pandas", "a table of the warm-up")
        from pandas import DataFrame

        file = self._folder.warmup
        rows = read_metrics(file) if file.is_file() else []
        return DataFrame(rows, columns=_columns(rows)).set_index("step")

    def episodes(self, kind: str = "train", step: int | None = None) -> Iterator[Episode]:
        """Yield the recorded episodes in the order of the steps. One file is read at a time.

        Args:
            kind: train, or evaluate for the evaluations.
            step: only those of this step.

        Raises: ConfigError if nothing was recorded.
        """
        names = f"{kind}-*.jsonl" if step is None else f"{kind}-{step:06d}.jsonl"
        files = sorted(self._folder.episodes(kind, 0).parent.glob(names))
        if not files:
            raise ConfigError(
                f"{self.path} has no episodes {names}; expected kind train or evaluate, and a step "
                "that was played (report.episodes: all records those of training)"
            )
        return (episode for file in files for episode in read_episodes(file).episodes)

    def samples(self, step: int, **objects: Unpack[Objects]) -> "DataFrame":
        """Return the completions of a training step, one row each: prompt, text, tokens, reward,
        advantage (docs/python.md lists the columns).

        Advantages are None if they need more than the recorded rewards, such as a critic's values.
        `objects` replace what the config names, as in `train`; a credit function that is given
        here is called. Nothing that the config names is loaded.
        """
        need("pandas", "a table of completions")
        from pandas import DataFrame

        found = list(self.episodes("train", step))
        with looking():
            advantages = recorded_advantages(recorded_config(self.path, **objects), found)
        return DataFrame(sample_rows(found, advantages), columns=list(COLUMNS))

    def team(self, **objects: Unpack[Objects]) -> "LoadedTeam":
        """Load the trained team, to ask its agents or to play. Close it, or use it in `with`.

        `objects` replace what the config names, as in `train`.
        """
        return load_team(self.path, **objects)

    def model(self, policy: str, *, device: str = "auto") -> Any:
        """Return a trained policy as a transformers model, or as a PEFT model for an adapter.

        It is in evaluation mode. `tokenizer` returns its tokenizer. Raises: ConfigError.
        """
        config = self.config
        folder, base, settings = self.sources(policy)
        where = resolve_device(device)
        full = config.policies[policy].train == "full"
        model: Any = load_model(
            folder if full and folder is not None else base, DTYPES[settings.dtype], where
        )
        if folder is not None and not full:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(folder))
        return model.eval()

    def tokenizer(self, policy: str) -> Any:
        """Return the tokenizer of a policy's model, with the run's own chat template if it has
        one."""
        _, base, settings = self.sources(policy)
        return tokenizer_with(base, settings.template)[0]

    def sources(self, policy: str) -> tuple[Path | None, str | Path, ModelConfig]:
        """Return the folder of a policy (None if it has no weights of its own), where its model is
        loaded from, and the settings of that model.

        Raises: ConfigError if the run has no such policy, or has not finished.
        """
        config = self.config
        if policy not in config.policies:
            raise ConfigError(
                f"{self.path} has no policy {policy!r}{nearest(policy, config.policies)}; it has "
                f"{', '.join(config.policies)}"
            )
        chosen = config.policies[policy]
        if chosen.model is None:
            raise ConfigError(
                f"policy {policy} of {self.path} is behind the endpoint "
                f"{config.endpoints[policy].base_url}, so the run has no model of it; expected a "
                "policy with a model"
            )
        kept, settings = self._folder.models / chosen.model, config.models[chosen.model]
        base: str | Path = kept if kept.is_dir() else str(settings.path)
        if chosen.train == "frozen":
            return None if chosen.adapter is None else Path(chosen.adapter), base, settings
        folder = self._folder.team / policy
        if not folder.is_dir():
            raise ConfigError(f"{folder} is missing: finish the run with motet train --resume")
        check_seal(folder)
        return folder, base, settings


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return ["step", *sorted({name for row in rows for name in row} - {"step"})]


class LoadedTeam:
    """A team, loaded once for many questions and games."""

    @blocking
    def __init__(self, settings: RunConfig, run: Path | None, show: Show = "silent") -> None:
        """`run`: the folder of its weights. None: it is the team that the config starts with."""
        self._run, self._show = run, show
        self._asked = 0
        with ExitStack() as stack:
            self._setup: TaskSetup
            opened = setup_in_scratch(settings, train=False)
            self._setup, self._scratch = stack.enter_context(opened)
            self._open = stack.pop_all()
        self._models: LocalModels | None = None

    @blocking
    def load(self) -> LocalModels:
        """Load the models, if they are not yet. Raises: ConfigError if there is no team."""
        if self._models is None:
            loading = models_of(self._setup, self._run, self._scratch, self._show)
            try:
                self._models = run_loop(loading)
            except BaseException:
                self.close()
                raise
        return self._models

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sandbox of the environment, if it has one."""
        self._open.close()

    @property
    def environment(self) -> Environment[Any]:
        """The game that the team plays."""
        return self._setup.environment

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self._setup.team.agents)

    @blocking
    def ask(self, agent: str, prompt: Prompt, *, turn: int = 0, greedy: bool = False) -> str:
        """Return what an agent writes to a prompt: a string, or a sequence of `motet.Message`.

        Repeated questions get different answers, unless `greedy`.

        Raises: ConfigError for an unknown agent; SamplerFault, for example for a prompt that is too
        long.
        """
        team = self._setup.team
        self._check_agent(agent)
        self._asked += 1
        request = SampleRequest(
            ("ask", agent, self._asked),
            team.policy_of(agent, turn),
            team.with_system(agent, prompt),
            team.decode[agent],
            (derive(self._setup.config.seed, "ask", self._asked),),
            greedy,
        )
        (answer,) = run_loop(self.load().sampler.sample([request]))
        if isinstance(answer, Fault):
            raise SamplerFault(answer.message)
        return answer.completions[0].text

    @blocking
    def probabilities(self, agent: str, prompt: Prompt, *, turn: int = 0) -> dict[str, float]:
        """Return the exact probability of every answer of an agent to a prompt.

        Raises: ConfigError for an unknown agent, or if `decode.format` of the agent lists no
        choices, or if its policy is behind an endpoint.
        """
        self._check_agent(agent)
        team, models = self._setup.team, self.load()
        name = team.policy_of(agent, turn)
        if name not in models.policies:
            raise ConfigError(
                f"policy {name} of agent {agent} is behind an endpoint; expected a model of this "
                "run, whose probabilities are known"
            )
        asked = team.with_system(agent, prompt)
        return answer_probabilities(models.policies[name], asked, team.decode[agent])

    def _check_agent(self, agent: str) -> None:
        agents = self._setup.team.agents
        if agent not in agents:
            raise ConfigError(f"got agent {agent!r}; expected one of {', '.join(agents)}")

    @blocking
    def play(
        self, task: int | Task = 0, *, greedy: bool = False, interactive: str | None = None
    ) -> Episode:
        """Play one path of a task and return it as an episode.

        Args:
            task: the number of a held-out task, or a task of your own.
            interactive: an agent whose answers are typed at the terminal.
        """
        setup = self._setup
        tasks, agents = setup.tasks["eval"], setup.team.agents
        if isinstance(task, int) and not 0 <= task < len(tasks):
            raise ConfigError(f"task is {task}; expected 0 to {len(tasks) - 1}")
        if interactive is not None and interactive not in agents:
            raise ConfigError(
                f"got agent {interactive!r} to play; expected one of {', '.join(agents)}"
            )
        sampler: Sampler = self.load().sampler
        if interactive is not None:
            sampler = PersonSampler(interactive, sampler)
        played = run_loop(
            play_all(
                setup.environment,
                [tasks[task] if isinstance(task, int) else task],
                sampler,
                setup.team,
                setup.config.rollout,
                seed=setup.config.seed,
                tag="play",
                greedy=greedy,
            )
        )
        return played.episodes[0]
