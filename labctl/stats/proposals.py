"""Settings proposed for a race that cannot run each of many: Optuna proposes, the race judges.

Nothing is kept between two calls: the study is made again from the finished trials, so a search
that goes on proposes what it would have proposed.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from labctl.config.recipe_parts import Scalar
from labctl.distribution import install_extra
from labctl.errors import ConfigError

#: So many settings need no proposals: a race runs them all.
MOST_WITHOUT = 60
#: Points asked for each setting; the others have no setting, or one that was proposed.
_ASKED = 20


def optuna_library() -> ModuleType:
    """Return Optuna. Raises ConfigError if it is not installed."""
    try:
        return import_module("optuna")
    except ImportError as error:
        raise ConfigError(
            f"a search of more than {MOST_WITHOUT} settings needs Optuna, which is not installed",
            hint=f"{install_extra('tune')}; or name fewer values in tune.space",
        ) from error


def propose(
    points: Mapping[str, Mapping[str, Scalar | None]],
    tried: Mapping[str, Sequence[float]],
    among: Collection[str],
    count: int,
    seed: int,
) -> list[str]:
    """Return up to ``count`` settings of ``among``.

    ``points``: the parameters of all settings, of the same keys; ``tried``: setting -> values of
    the objectives, greater is better.
    """
    optuna = optuna_library()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {key: _axis([point[key] for point in points.values()]) for key in _keys(points)}
    distributions = {key: _distribution(optuna, axis) for key, axis in axes.items()}
    places = {
        one: {key: axis.index(point[key]) for key, axis in axes.items()}
        for one, point in points.items()
    }
    study = optuna.create_study(
        directions=["maximize"] * len(next(iter(tried.values()), (0,))),
        sampler=optuna.samplers.TPESampler(
            seed=random.Random(f"{seed}/{len(tried)}").getrandbits(31),  # noqa: S311 - no secret
            multivariate=True,
        ),
    )
    study.add_trials(
        optuna.trial.create_trial(
            params=places[one], distributions=distributions, values=list(values)
        )
        for one, values in tried.items()
    )
    left = {tuple(places[one].values()): one for one in among}
    found: list[str] = []
    for _ in range(_ASKED * count):
        if len(found) == count or not left:
            return found
        trial = study.ask(distributions)
        one = left.pop(tuple(trial.params[key] for key in axes), None)
        if one is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            found.append(one)
    rest = sorted(left.values())
    random.Random(f"{seed}/{len(tried)}").shuffle(rest)  # noqa: S311 - not for secrets
    return [*found, *rest[: count - len(found)]]


def _keys(points: Mapping[str, Mapping[str, Scalar | None]]) -> list[str]:
    return sorted({key for point in points.values() for key in point})


def _axis(values: Sequence[Scalar | None]) -> list[Scalar | None]:
    """Return the different values, numbers in their order."""
    found = list(dict.fromkeys(values))
    return sorted(found) if _is_ordered(found) else found  # type: ignore[type-var]


def _is_ordered(values: Sequence[Scalar | None]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _distribution(optuna: ModuleType, axis: Sequence[Scalar | None]) -> Any:
    if _is_ordered(axis):
        return optuna.distributions.IntDistribution(0, len(axis) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(axis)))
