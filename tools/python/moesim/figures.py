"""What the figures of a result are in Python: those of the command line's JSON, nothing is computed here."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import Any, Dict, Iterator, Mapping, Tuple, Type, TypeVar

Self = TypeVar("Self", bound="Figures")


@dataclass(frozen=True)
class Estimate:
    """A value with its 90 % interval."""

    value: float
    low: float
    high: float


def figure(value: Any) -> Any:
    """An interval as an Estimate, a peak with its rank as the peak, a list as a tuple, else a copy."""
    if isinstance(value, dict) and set(value) == {"value", "low", "high"}:
        return Estimate(**value)
    if isinstance(value, dict) and {"max", "rank"} <= set(value):
        return value["max"]
    return tuple(copy.deepcopy(value)) if isinstance(value, list) else copy.deepcopy(value)


def flat(data: Mapping[str, Any], before: str = "") -> Iterator[Tuple[str, Any]]:
    """The plain values below a JSON object by their path, "time_us.value"; lists of objects are left out."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")
        elif not isinstance(value, list) or not any(isinstance(one, (Mapping, list)) for one in value):
            yield before + key, value


@dataclass(frozen=True)
class Figures:
    """An object of a result; fields are its keys, None where it has none."""

    _data: Dict[str, Any] = field(repr=False, hash=False)

    @classmethod
    def _of(cls: Type[Self], data: Dict[str, Any]) -> Self:
        return cls(data, **{one.name: figure(data.get(one.name)) for one in fields(cls) if one.name != "_data"})

    def to_dict(self) -> Dict[str, Any]:
        """All that the command line's JSON says of it."""
        return copy.deepcopy(self._data)

    def row(self) -> Dict[str, Any]:
        """The same flat, without lists of objects and a whole scenario, by JSON path: "time_us.value"."""
        return dict(flat({key: value for key, value in self._data.items() if key != "scenario"}))
