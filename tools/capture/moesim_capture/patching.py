"""Replaces functions of a module for a while, also where others imported them by name before."""
import sys


class Patches:
    def __init__(self):
        self._undo = []
        self._replaced = {}  # id of the original -> (original, replacement)

    def replace(self, owner, name: str, replacement):
        """Sets owner.name; a name that the owner lacks, or only inherits, is added."""
        missing = name not in vars(owner)
        original = None if missing else vars(owner)[name]
        setattr(owner, name, replacement)
        self._undo.append((owner, name, original, missing, replacement))
        if not missing:
            self._replaced[id(original)] = (original, replacement)

    def spread(self):
        """Replaces the same functions wherever a module holds them under any name."""
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            # This package keeps originals on purpose.
            if not isinstance(names, dict) or str(names.get("__name__")).startswith(__package__ + "."):
                continue
            for key, value in list(names.items()):
                known = self._replaced.get(id(value))
                if known is not None and known[0] is value:
                    names[key] = known[1]
                    self._undo.append((module, key, value, False, known[1]))

    def restore(self):
        """Restores the functions that are still ours; leaves those that other code has replaced meanwhile."""
        for owner, name, original, missing, replacement in reversed(self._undo):
            if vars(owner).get(name) is not replacement:
                continue
            if missing:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._undo.clear()
        self._replaced.clear()


def kinds_of(kind):
    """A class and all below it, once each."""
    found, left = [], [kind]
    while left:
        one = left.pop()
        if one not in found:
            found.append(one)
            left += one.__subclasses__()
    return found


def named(function, name: str):
    """The function with this name, in its code, too. pybind11 takes a method of Python for an override of its own and calls
    it from C++; that the override itself calls the original, which ends the recursion, it tells by the name of the code."""
    function.__code__ = function.__code__.replace(co_name=name)
    function.__name__ = name
    return function
