"""Answers of moesim as dataclasses: numbers are those of the command line's JSON, nothing is computed here."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Type

from ._moesim import InputError
from .figures import Estimate, Figures, Self, figure, flat
from .result_types import Anchor, Plan, Recommendation, Scenario, Winner

if TYPE_CHECKING:
    import pandas


def _part(of: Type[Self], data: Dict[str, Any], key: str) -> Optional[Self]:
    return of._of(data[key]) if key in data else None


def _refuse_replay(data: Dict[str, Any], verb: str) -> None:
    """A recording without several dispatchers is answered as `replay` answers."""
    if data["schema"].startswith("moesim.replay"):
        raise InputError(f"{verb}: found the replay of a recording, whose result is a dict: run({verb!r}, folder, ...)")


@dataclass(frozen=True)
class Result(Figures):
    """The answer of every verb: its JSON and the notes beside it. `to_dict()` is what `moesim ... --format json` prints."""

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
    scenario: Dict[str, Any] = field(default_factory=dict, repr=False)  # complete, but of a recording empty: compare(c.scenario) asks it again

    @classmethod
    def _of(cls, data: Dict[str, Any]) -> "Comparison":
        _refuse_replay(data, "compare")
        return cls(
            _data=data,
            answer=data["answer"],
            because=data.get("because", ""),
            recommendation=_part(Recommendation, data, "recommendation"),
            winner=_part(Winner, data, "winner"),
            anchor=_part(Anchor, data, "anchor"),
            scenarios=tuple(Scenario._of(one) for one in data.get("scenarios", ())),
            excluded=tuple((one["dispatcher"], one["rule"]) for one in data.get("excluded", ())),
            scenario=copy.deepcopy(data["inputs"].get("scenario", {})),
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
        _refuse_replay(data, "whatif")
        explained = "difference" in data
        return cls(
            _data=data,
            because=data["because"] if explained else data["answer"],
            anchor=_part(Anchor, data, "anchor"),
            difference_us=figure(data["difference"]["time_us"]) if explained else None,
            ratio=figure(data["difference"]["ratio"]) if explained else None,
            changes=figure(data.get("changes", [])),
        )

    def rows(self) -> List[Dict[str, Any]]:
        """A row a dispatcher that has a forecast on both sides, with its difference, columns by JSON path."""
        return [dict(flat(one)) for one in self._data.get("differences", ())]

    def __str__(self) -> str:
        return self.because


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
                   gap=data["searched"]["gap"], upgrades=figure(data["upgrades"]), left_out=figure(data["left_out"]), **chosen)

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
