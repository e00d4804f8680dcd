"""moesim: what a mixture-of-experts training job costs on hardware you do not own yet, and which token dispatcher it
should run.

    import moesim
    a = moesim.compare(model="mixtral-8x7b", cluster="dgx-h100x4", ep=8)
    print(a.answer)

Keywords are the options of the command line with _ for - (`help(moesim.keywords)`), a scenario may be a dict, JSON or a
file, and a question is answered by the code that answers the command line. Bad input raises InputError with the command
line's text. Calls release the interpreter lock.
"""

from __future__ import annotations

import json as _json
import os as _os
import typing as _t

from . import _moesim
from ._moesim import InputError
from .answers import Comparison, Listed, Result, Training, WhatIf
from .figures import Estimate
from .result_types import Anchor, Plan, Recommendation, Scenario, Winner

__version__ = _moesim.version
__all__ = ["Anchor", "Comparison", "Estimate", "InputError", "Listed", "Plan", "Recommendation", "Result", "Scenario",
           "Training", "WhatIf", "Winner", "compare", "keywords", "list", "plan", "run", "scenario", "whatif"]

InputError.__module__ = "moesim"
InputError.__doc__ = "Input that moesim refuses; the text is that of the command line."

# Options that a caller cannot set: results come back as objects.
_FIXED = {"format": "an object comes back", "quiet": "warnings are in the result", "help": "see help(moesim)",
          "version": "see moesim.__version__"}
# Options that are given once for each element of a list; those of others are joined by commas.
_REPEATED = {"set", "grid", "list", "range", "map", "with"}


def _text(value: _t.Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _os.PathLike):
        return _os.fsdecode(value)
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        return _text(value.item())  # a number of numpy
    if isinstance(value, (tuple, dict)) or type(value).__name__ == "list":
        if not isinstance(value, dict) and all(isinstance(one, str) for one in value):
            return ",".join(value)
        return _json.dumps(value, allow_nan=False)
    if isinstance(value, (int, float)):
        return repr(value)
    raise TypeError(f"found {type(value).__name__}, expected a text, a number, True, False, a dict, a list or a path")


def _told(name: str, value: _t.Any) -> str:
    try:
        text = _text(value)
    except ValueError as error:  # NaN, or a number of too many digits
        raise InputError(f"{name}: {error}") from None
    if text == "":  # the command line would take the next option for it
        raise InputError(f"{name}: found nothing, expected a value, or None")
    return text


def _bytes(word: str) -> bytes:
    """Words as a shell gives them: what is no text in UTF-8 is refused as there."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


def _words(verb: str, scenario: _t.Any, options: _t.Mapping[str, _t.Any]) -> _t.List[str]:
    words = [verb]
    if scenario is not None:
        words.append(_told("scenario", dict(scenario) if isinstance(scenario, _t.Mapping) else scenario))
    for name, value in options.items():
        if name in _FIXED:
            raise InputError(f"found the keyword {name}, expected none: {_FIXED[name]}")
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        several = name in _REPEATED and isinstance(value, _t.Sequence) and not isinstance(value, str)
        for one in value if several else [value]:
            words.append(option if one is True else f"{option}={_told(name, one)}")
    return words


def run(verb: str, scenario: _t.Any = None, /, *words: str, **options: _t.Any) -> _t.Dict[str, _t.Any]:
    """Returns the JSON result of any verb that has one: `moesim VERB [scenario] [words] [--options] --format json`.

    `scenario` is a dict, JSON, or the path of a file; an option that is True stands alone, one that is None or False is
    not given, and `set=[a, b]` gives --set twice."""
    if not isinstance(verb, str):
        raise TypeError(f"found {type(verb).__name__}, expected the name of a verb: run('replay', folder)")
    asked = [*_words(verb, scenario, options), *map(_text, words), "--quiet", "--format", "json"]
    _code, text = _moesim.run([_bytes(word) for word in asked])  # of checks: the result says what it found
    try:
        result: _t.Dict[str, _t.Any] = _json.loads(text)
    except _json.JSONDecodeError:
        raise InputError(f"{verb}: found no JSON result, expected a verb that has one") from None
    return result


def _anchoring(measured: _t.Any, tolerance: _t.Any) -> _t.Dict[str, _t.Any]:
    if isinstance(measured, _t.Mapping):
        measured = ",".join(f"{name}={_told('measured', time)}" for name, time in measured.items())
    return {"measured": measured, "tolerance": tolerance}


def compare(scenario: _t.Any = None, *, measured: _t.Any = None, tolerance: _t.Any = None, **options: _t.Any) -> Comparison:
    """Which dispatcher to run, what that can cost, and why.

        compare(model="mixtral-8x7b", cluster="dgx-h100x4", ep=8, dispatcher=["allgather", "alltoall"])
        compare({"model": "mixtral-8x7b", "parallel": {"ep": 8}}, routing="zipf:1.2", draws=0)
        compare("train.sh", measured="1.9s", tolerance=0.05)

    `measured`: what a run of this job took, which all forecasts are anchored to: a time, or a dict of times by dispatcher.
    `tolerance`: the loss against the fastest that a safe choice may have, 0.1 where it is not given. Options are those of `moesim compare --help all`."""
    return Comparison._of(run("compare", scenario, **_anchoring(measured, tolerance), **options))


def whatif(scenario: _t.Any = None, changes: _t.Optional[_t.Mapping[str, _t.Any]] = None, *, measured: _t.Any = None,
           tolerance: _t.Any = None, **options: _t.Any) -> WhatIf:
    """A scenario beside a changed one.

        whatif(a.scenario, {"cluster.nic.bandwidth": "100GBps"})

    `changes` are paths of `moesim whatif --paths` with their new values; "x2" is twice what it was. `measured` is of the
    scenario before the change. Other questions
    (`--crossover`, `--map`, `--best`) are asked by `run("whatif", scenario, crossover="topk=1..8")`."""
    if not changes:
        raise InputError("whatif: found no change, expected at least one")
    sets = ["--set=" + path + "=" + _told(path, value) for path, value in changes.items()]
    return WhatIf._of(run("whatif", scenario, *sets, **_anchoring(measured, tolerance), **options))


def plan(scenario: _t.Any = None, *, tokens: _t.Any = None, measured: _t.Any = None, **options: _t.Any) -> Training:
    """On which machine and with which plan a model is trained on so many tokens, how long that takes and what it costs.

        plan(model="qwen3-30b-a3b", tokens="2T", clusters=["h100", "b200"], gpus=256, deadline="60d", buy="b200=50000")

    Options are those of `moesim plan --help all`."""
    return Training._of(run("plan", scenario, tokens=tokens, **_anchoring(measured, None), **options))


def scenario(scenario: _t.Any = None, **options: _t.Any) -> _t.Dict[str, _t.Any]:
    """The complete scenario of a question or of a training job's file, with what follows from other values."""
    return run("scenario", scenario, **options)


def list(kind: _t.Optional[str] = None) -> _t.Any:
    """Returns the built-in names: of a kind ("models", "clusters", "profiles", "networks", "dispatchers", "routings"), or all by
    kind."""
    result = run("list", kind)
    kinds = {name: tuple(Listed(**one) for one in rows) for name, rows in result.items()
             if name not in ("schema", "version", "inputs", "warnings")}
    return kinds if kind is None else kinds[kind]


def keywords() -> _t.Dict[str, str]:
    """The keywords that say a scenario, each with what it means; the command line has them as options."""
    return {name: help for name, _path, help in _moesim.keywords()}
