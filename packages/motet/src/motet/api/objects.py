"""Python objects as arguments, where a config names files.

Each object is kept in this process, and the config gets a reference to it
(`motet.user_code.objects`). So `config.yaml` of a run says where its objects came from, and
`compare` shows where they differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from pydantic import ValidationError
from torch import Tensor

from motet.algorithms import ALGORITHMS, resolve
from motet.config.schema import DEFAULT_ALGORITHM, what_differs
from motet.config.yaml import KeyPath
from motet.core import Environment
from motet.core.row_values import kept
from motet.credit.baselines import Baseline, Comparison
from motet.credit.own import CreditFunction
from motet.environments.registry import check_is_environment
from motet.environments.reward import RewardLike
from motet.errors import ConfigError
from motet.losses import LossInputs, PolicyLoss
from motet.settings import Algorithm
from motet.settings.flat_keys import laid_on
from motet.user_code.objects import keep, keep_rows
from motet.user_code.plugins import nearest, reference_to

RowsLike: TypeAlias = Iterable[Mapping[str, Any]] | str | Path
"""A list of rows, a table of datasets, pandas or pyarrow, or the path of a file or folder of
rows."""


class Objects(TypedDict, total=False):
    """Objects that replace what a config names. In another process they must be passed again."""

    environment: Environment[Any] | type[Environment[Any]]
    """An environment, or a class without options, in place of `environment`."""
    reward: RewardLike
    """A function `(task, texts) -> number` or `(task, texts, transition) -> number`, or an object
    with `score`, in place of `reward`."""
    algorithm: str | Mapping[str, Any] | Algorithm
    """In place of `algorithm`: a name of `motet.algorithms`, a name with options that differ from
    it (`{"name": "magrpo", "gamma": 0.9}`), or all options (`motet.Algorithm(...)`). These are
    plain values, so the config has all of them."""
    credit: CreditFunction
    """A credit function in place of `algorithm.credit.function`."""
    loss: Callable[[LossInputs], Tensor] | PolicyLoss
    """A policy loss in place of `algorithm.loss.kind`. A clip range of the config stays."""
    baseline: Callable[[Comparison], Tensor] | Baseline
    """A baseline in place of `algorithm.credit.baseline`."""
    tools: Mapping[str, Sequence[Any]]
    """Agent -> what it may call, in place of `team.AGENT.tools`: functions, objects as
    `motet.core.Tool`, or what a config has there."""
    data: RowsLike | Mapping[str, RowsLike]
    """Rows in place of `data`: {"train": rows, "eval": rows}, or only the rows to train on."""


def sections_of(objects: Mapping[str, Any]) -> dict[KeyPath, Any]:
    """Keep the objects, and return the values of the config that refer to them, by their keys.

    Raises: TypeError for an unknown argument; ConfigError for an object of a wrong kind.
    """
    unknown = [name for name in objects if name not in Objects.__annotations__]
    if unknown:
        raise TypeError(
            f"got an unexpected keyword argument {unknown[0]!r}"
            f"{nearest(unknown[0], Objects.__annotations__)}; objects are "
            f"{', '.join(Objects.__annotations__)}"
        )
    found: dict[KeyPath, Any] = {}
    given = {name: value for name, value in objects.items() if value is not None}
    if "environment" in given:
        found["environment",] = {"name": _environment(given["environment"])}
    if "reward" in given:
        found["reward",] = {"name": _kept(given["reward"])}
    if "algorithm" in given:
        found["algorithm",] = _algorithm(given["algorithm"])
    if "credit" in given:
        found["algorithm", "credit", "function"] = _kept(_function(given["credit"], "credit"))
    if "loss" in given:
        found["algorithm", "loss", "kind"] = _of(given["loss"], "loss", PolicyLoss)
    if "baseline" in given:
        found["algorithm", "credit", "baseline"] = _of(given["baseline"], "baseline", Baseline)
    for agent, own in given.get("tools", {}).items():
        if not isinstance(own, list | tuple):
            raise ConfigError(f"tools of agent {agent}: got {own!r}; expected a list of tools")
        found["team", agent, "tools"] = [
            one if isinstance(one, str | Mapping) else _kept(one) for one in own
        ]
    if "data" in given:
        data = given["data"]
        splits = data if isinstance(data, Mapping) else {"train": data}
        wrong = [split for split in splits if split not in ("train", "eval")]
        if wrong:
            raise ConfigError(f"data has {wrong[0]!r}; expected train and eval")
        for split, rows in splits.items():
            found["data", split] = {"path": rows_of(rows, split)}
    return found


def rows_of(rows: RowsLike, split: str, *, recorded: bool = False) -> str:
    """Return the path of the rows, or a reference to them. `recorded`: as in `keep_rows`."""
    if isinstance(rows, str | Path):
        return str(rows)
    found = [dict(row) if isinstance(row, Mapping) else row for row in _listed(rows)]
    wrong = [number for number, row in enumerate(found, start=1) if not isinstance(row, dict)]
    if wrong:
        row = found[wrong[0] - 1]
        raise ConfigError(
            f"data.{split}: row {wrong[0]} is {type(row).__name__}; expected a mapping of field "
            "names to values"
        )
    return keep_rows(
        [kept(row, f"data.{split}: row {number}") for number, row in enumerate(found, start=1)],
        split,
        recorded=recorded,
    )


def _listed(rows: Any) -> Iterable[Any]:
    """Return the rows of a table of pandas, pyarrow or datasets; anything else as it is.

    Iterating over a table would give the names of its columns, or decoded images.
    """
    library = type(rows).__module__.partition(".")[0]
    if library == "pandas":
        import pandas

        return rows.to_dict("records") if isinstance(rows, pandas.DataFrame) else list(rows)
    if library == "pyarrow":
        import pyarrow

        return rows.to_pylist() if isinstance(rows, pyarrow.Table) else list(rows)
    if library == "datasets":
        import datasets

        stored = isinstance(rows, datasets.Dataset) and rows.format["type"] != "custom"
        return rows.with_format(None).to_list() if stored else list(rows)
    return list(rows)


def _environment(given: Any) -> str:
    if not isinstance(given, type):
        check_is_environment(given, "environment")
    return _kept(given)


def _kept(given: Any) -> str:
    """Return a reference to an object: to its file if the main script defines it, because no other
    process can import that."""
    in_script = getattr(given, "__module__", None) == "__main__"
    return (reference_to(given) if in_script else None) or keep(given)


def _algorithm(given: Any) -> dict[str, Any]:
    """Return the algorithm as a config writes it: a row of the table, and what differs from it.

    What the object does not set, and a run derives, is left out. Raises: ConfigError.
    """
    if isinstance(given, str | Mapping):
        return {"name": given} if isinstance(given, str) else dict(given)
    if not isinstance(given, Algorithm):
        raise ConfigError(
            f"algorithm: got {type(given).__name__}, expected a name such as 'magrpo', a mapping "
            "such as {'name': 'magrpo', 'gamma': 0.9}, or a motet.Algorithm"
        )
    name = given.name if given.name in ALGORITHMS else DEFAULT_ALGORITHM
    if given.name in ALGORITHMS:
        _refuse_another_row(given)
    said = given.model_dump(mode="json", exclude_unset=True)
    return {**laid_on(what_differs(given, ALGORITHMS[name]), said), "name": name}


def _refuse_another_row(given: Algorithm) -> None:
    """Raises: ConfigError if the row of this name, with the options that `given` sets, is another
    algorithm: a record of the run would name an algorithm that was not run."""
    name = given.name
    try:
        named = resolve(name, given.model_dump(exclude_unset=True))
    except ValidationError:  # the options contradict those of the row
        named = ALGORITHMS[name]
    if named == given:
        return
    said, wanted = given.model_dump(mode="json"), named.model_dump(mode="json")
    keys = [key for key in said if said[key] != wanted[key]]
    raise ConfigError(
        f"algorithm: got motet.Algorithm(name={name!r}) without the options of {name} ("
        f"{', '.join(keys)}): only the table of algorithms has them. Pass algorithm={name!r}, or "
        f"{{'name': {name!r}, ...}} with what differs, or give your Algorithm a name of its own"
    )


def _of(given: Any, where: str, kind: type[PolicyLoss] | type[Baseline]) -> str:
    """Return a reference to a function, or to an entry of a table, which its function names."""
    if isinstance(given, kind):
        return keep(given, _function(given.of, f"{where}.of"))
    if isinstance(given, type) or not callable(given):
        raise ConfigError(
            f"{where}: got {type(given).__name__}, expected a function or a {kind.__name__}"
        )
    return _kept(given)


def _function(given: Any, where: str) -> Any:
    if isinstance(given, type) or not callable(given):
        raise ConfigError(f"{where}: got {type(given).__name__}, expected a function")
    return given
