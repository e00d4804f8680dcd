"""What moesim answers, as dataclasses: numbers are those of the command line's JSON, nothing is computed here."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple


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
            _data=data,
        )

    def to_dict(self) -> Dict[str, Any]:
        """All that the command line's JSON says of the dispatcher."""
        return copy.deepcopy(self._data)

    def row(self) -> Dict[str, Any]:
        """The same without lists of objects, flat, by JSON path: "time_us.value", "breakdown_us.attention"."""
        return dict(_flat(self._data))


@dataclass(frozen=True)
class Winner:
    """Who wins, and how sure that is. `verdict`: clear, too_close, only_one, none_fits or none."""

    dispatcher: Optional[str]
    verdict: str
    probability: float
    speedup: Estimate
    among: Tuple[str, ...]
    measure_next: Optional[str]

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Winner":
        return cls(data["dispatcher"], data["verdict"], data["probability"], Estimate._of(data["speedup"]),
                   tuple(data["among"]), data["measure_next"])


@dataclass(frozen=True)
class Result:
    """What every verb answers: its JSON, and what there is to know beside it."""

    _data: Dict[str, Any] = field(repr=False)

    def to_dict(self) -> Dict[str, Any]:
        """The result as `moesim ... --format json` prints it."""
        return copy.deepcopy(self._data)

    @property
    def warnings(self) -> List[str]:
        return list(self._data["warnings"])


@dataclass(frozen=True)
class Comparison(Result):
    """The dispatchers of a scenario against each other. In pandas: `pandas.DataFrame(comparison.rows())`."""

    answer: str = ""
    because: str = ""
    winner: Optional[Winner] = None
    scenarios: Tuple[Scenario, ...] = ()
    excluded: Tuple[Tuple[str, str], ...] = ()  # dispatcher, rule
    scenario: Dict[str, Any] = field(default_factory=dict, repr=False)  # complete: compare(c.scenario) asks it again

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Comparison":
        return cls(
            _data=data,
            answer=data["answer"],
            because=data["because"],
            winner=Winner._of(data["winner"]),
            scenarios=tuple(Scenario._of(one) for one in data["scenarios"]),
            excluded=tuple((one["dispatcher"], one["rule"]) for one in data["excluded"]),
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
    """A scenario beside a changed one. `ratio` is the fastest's time after the change over that before it."""

    because: str = ""
    difference_us: Optional[Estimate] = None
    ratio: Optional[Estimate] = None
    changes: Tuple[Dict[str, Any], ...] = ()

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "WhatIf":
        return cls(
            _data=data,
            because=data["because"],
            difference_us=Estimate._of(data["difference"]["time_us"]),
            ratio=Estimate._of(data["difference"]["ratio"]),
            changes=tuple(copy.deepcopy(data["changes"])),
        )

    def rows(self) -> List[Dict[str, Any]]:
        """A row a dispatcher that has a forecast on both sides, with its difference, columns by JSON path."""
        return [dict(_flat(one)) for one in self._data["differences"]]

    def __str__(self) -> str:
        return self.because


@dataclass(frozen=True)
class Listed:
    """Something that is built in."""

    name: str
    description: str
