"""Answers of moesim as dataclasses: numbers are those of the command line's JSON, nothing is computed here."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Estimate:
    """A value with its 90 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def _of(cls, data: Mapping[str, float]) -> "Estimate":
        return cls(data["value"], data["low"], data["high"])


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[Tuple[str, Any]]:
    """The plain values below a JSON object by their path, "time_us.value"; lists of objects are left out."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif not isinstance(value, list) or not any(isinstance(one, (Mapping, list)) for one in value):
            yield before + key, value


@dataclass(frozen=True)
class Scenario:
    """One dispatcher, answered."""

    dispatcher: str
    ranked: bool
    not_ranked_because: Optional[str]
    time_us: Estimate
    breakdown_us: Dict[str, float]
    tokens_per_s_per_gpu: float
    mfu: float
    peak_memory_bytes: float
    fits: bool
    fits_probability: float
    unmeasured: List[str]
    fastest_probability: Optional[float]  # with draws, of those that can be chosen; the losses, too
    expected_loss: Optional[float]
    loss_at_most: Optional[float]
    _data: Dict[str, Any] = field(repr=False)

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Scenario":
        return cls(
            dispatcher=data["dispatcher"],
            ranked=data["ranked"],
            not_ranked_because=data["not_ranked_because"],
            time_us=Estimate._of(data["time_us"]),
            breakdown_us=dict(data["breakdown_us"]),
            tokens_per_s_per_gpu=data["tokens_per_s_per_gpu"],
            mfu=data["mfu"],
            peak_memory_bytes=data["peak_memory_bytes"]["max"],
            fits=data["fits"],
            fits_probability=data["fits_probability"],
            unmeasured=list(data["unmeasured"]),
            fastest_probability=data.get("fastest_probability"),
            expected_loss=data.get("expected_loss"),
            loss_at_most=data.get("loss_at_most"),
            _data=data,
        )

    def to_dict(self) -> Dict[str, Any]:
        """All that the command line's JSON says of the dispatcher."""
        return copy.deepcopy(self._data)

    def row(self) -> Dict[str, Any]:
        """Returns the answer flat, without lists of objects, by JSON path: "time_us.value", "breakdown_us.attention"."""
        return dict(_flat(self._data))


@dataclass(frozen=True)
class Winner:
    """The recommended dispatcher against the others. `verdict`: clear, too_close, only_one, none_fits or none."""

    dispatcher: Optional[str]
    verdict: str
    probability: Optional[float]  # None without draws
    speedup: Estimate
    among: Tuple[str, ...]
    measure_next: Optional[str]

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Winner":
        return cls(data["dispatcher"], data["verdict"], data["probability"], Estimate._of(data["speedup"]),
                   tuple(data["among"]), data["measure_next"])


@dataclass(frozen=True)
class Recommendation:
    """The dispatcher to run, and what that can cost: losses are shares of the fastest one's time (0.02: 2 % slower).

    `verdict`: clear (it is the fastest with a probability of 0.9 or more), safe (its loss is within the tolerance with
    90 %), open (neither), only_one, none_fits or none. Probability and losses are None without draws."""

    dispatcher: Optional[str]
    verdict: str
    probability: Optional[float]
    expected_loss: Optional[float]
    loss_at_most: Optional[float]  # with 90 %
    tolerance: float
    settle: Optional[str]  # the command that measures what would settle it
    alike: Tuple[str, ...]  # those within 2 % that are as safe to run, itself first

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Recommendation":
        all: Dict[str, Any] = {**data, "alike": tuple(data["alike"])}
        return cls(**all)


@dataclass(frozen=True)
class Anchor:
    """A run that was measured, and what it told. Where it is not `explained`, there is no recommendation."""

    explained: bool
    effective_draws: float
    measured: Tuple[Dict[str, Any], ...]  # dispatcher, time_us, forecast_us
    moved: Tuple[Dict[str, Any], ...]  # parameter, before, after
    suspects: Tuple[Dict[str, Any], ...]  # path, value, time_us of settings that would explain it

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Anchor":
        return cls(data["explained"], data["effective_draws"],
                   *(tuple(copy.deepcopy(data[key])) for key in ("measured", "moved", "suspects")))


@dataclass(frozen=True)
class Result:
    """The answer of every verb: its JSON and the notes beside it."""

    _data: Dict[str, Any] = field(repr=False)

    def to_dict(self) -> Dict[str, Any]:
        """The result as `moesim ... --format json` prints it."""
        return copy.deepcopy(self._data)

    @property
    def warnings(self) -> List[str]:
        return list(self._data["warnings"])

    def rows(self) -> List[Dict[str, Any]]:
        """The rows of the answer's table, columns by JSON path."""
        raise NotImplementedError

    def frame(self) -> "pandas.DataFrame":
        """The rows as a frame of pandas, which has to be installed."""
        import pandas

        return pandas.DataFrame(self.rows())


@dataclass(frozen=True)
class Comparison(Result):
    """The dispatchers of a scenario against each other."""

    answer: str = ""
    because: str = ""
    recommendation: Optional[Recommendation] = None  # None where the measured run is not explained; the winner, too
    winner: Optional[Winner] = None
    anchor: Optional[Anchor] = None  # where a run was measured
    scenarios: Tuple[Scenario, ...] = ()
    excluded: Tuple[Tuple[str, str], ...] = ()  # dispatcher, rule
    scenario: Dict[str, Any] = field(default_factory=dict, repr=False)  # complete: compare(c.scenario) asks it again

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Comparison":
        return cls(
            _data=data,
            answer=data["answer"],
            because=data.get("because", ""),
            recommendation=Recommendation._of(data["recommendation"]) if "recommendation" in data else None,
            winner=Winner._of(data["winner"]) if "winner" in data else None,
            anchor=Anchor._of(data["anchor"]) if "anchor" in data else None,
            scenarios=tuple(Scenario._of(one) for one in data.get("scenarios", ())),
            excluded=tuple((one["dispatcher"], one["rule"]) for one in data.get("excluded", ())),
            scenario=copy.deepcopy(data["inputs"]["scenario"]),
        )

    def __getitem__(self, dispatcher: str) -> Scenario:
        for one in self.scenarios:
            if one.dispatcher == dispatcher:
                return one
        raise KeyError(dispatcher)

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def __len__(self) -> int:
        return len(self.scenarios)

    def rows(self) -> List[Dict[str, Any]]:
        """A row a dispatcher, columns by JSON path."""
        return [one.row() for one in self.scenarios]

    def __str__(self) -> str:
        return self.answer


@dataclass(frozen=True)
class WhatIf(Result):
    """A scenario beside a changed one. `ratio` is the recommended one's time after the change over that before it; None
    where a measured run is not explained."""

    because: str = ""
    anchor: Optional[Anchor] = None
    difference_us: Optional[Estimate] = None
    ratio: Optional[Estimate] = None
    changes: Tuple[Dict[str, Any], ...] = ()

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "WhatIf":
        explained = "difference" in data
        return cls(
            _data=data,
            because=data["because"] if explained else data["answer"],
            anchor=Anchor._of(data["anchor"]) if "anchor" in data else None,
            difference_us=Estimate._of(data["difference"]["time_us"]) if explained else None,
            ratio=Estimate._of(data["difference"]["ratio"]) if explained else None,
            changes=tuple(copy.deepcopy(data["changes"])) if explained else (),
        )

    def rows(self) -> List[Dict[str, Any]]:
        """A row a dispatcher that has a forecast on both sides, with its difference, columns by JSON path."""
        return [dict(_flat(one)) for one in self._data.get("differences", ())]

    def __str__(self) -> str:
        return self.because


@dataclass(frozen=True)
class Plan:
    """A plan of a training: where it runs, how, for how long and for how much."""

    cluster: str
    gpus: int
    parallel: Dict[str, int]
    dispatcher: str
    precision: str
    schedule: str
    recompute: str
    step_time_us: Estimate
    days: Estimate
    cost: Estimate
    mfu: float
    fits_probability: float
    deadline_probability: float
    budget_probability: float
    meets: bool  # the deadline and the budget, with a probability of 0.9
    lower_precision: bool  # than the model's: it changes the numerics, and is no choice
    group: str  # plans of one letter may be as good as each other
    command: str  # asks about its step again
    purchase: Optional[Dict[str, Any]]  # of a bought machine: price, gpu_hour by parts, rent_cost, pays_from_share
    _data: Dict[str, Any] = field(repr=False)

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Plan":
        same = ("cluster", "gpus", "parallel", "dispatcher", "precision", "schedule", "recompute", "mfu", "fits_probability",
                "deadline_probability", "budget_probability", "group", "meets", "lower_precision", "command")
        all: Dict[str, Any] = {name: copy.deepcopy(data[name]) for name in same}
        for name in ("step_time_us", "days", "cost"):
            all[name] = Estimate._of(data[name])
        return cls(**all, purchase=copy.deepcopy(data.get("purchase")), _data=data)

    @property
    def scenario(self) -> Dict[str, Any]:
        """Complete: compare(plan.scenario) asks about its step."""
        return copy.deepcopy(self._data["scenario"])

    def row(self) -> Dict[str, Any]:
        """All that the command line's JSON says of it but the scenario, flat, by JSON path."""
        return dict(_flat({name: value for name, value in self._data.items() if name != "scenario"}))


@dataclass(frozen=True)
class Training(Result):
    """The plans of a training, the best first. The three choices are None where no plan meets what was asked for."""

    answer: str = ""
    currency: str = ""
    plans: Tuple[Plan, ...] = ()
    cheapest: Optional[Plan] = None
    fewest_gpus: Optional[Plan] = None
    shortest: Optional[Plan] = None
    gap: Optional[float] = None  # at most so much faster is a plan that was left out; None: not known
    upgrades: Tuple[Dict[str, Any], ...] = ()
    left_out: Tuple[Dict[str, Any], ...] = ()

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Training":
        plans = tuple(Plan._of(one) for one in data["plans"])
        chosen = {name: None if at is None else plans[at] for name, at in data["choices"].items()}
        return cls(_data=data, answer=data["answer"], currency=data["currency"], plans=plans,
                   gap=data["searched"]["gap"], upgrades=tuple(copy.deepcopy(data["upgrades"])),
                   left_out=tuple(copy.deepcopy(data["left_out"])), **chosen)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def rows(self) -> List[Dict[str, Any]]:
        """A row a plan, columns by JSON path."""
        return [one.row() for one in self.plans]

    def __str__(self) -> str:
        return self.answer


@dataclass(frozen=True)
class Listed:
    """Something that is built in."""

    name: str
    description: str
