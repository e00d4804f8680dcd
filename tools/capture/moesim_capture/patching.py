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
        self._undo.append((owner, name, original, missing))
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
                    self._undo.append((module, key, value, False))

    def restore(self):
        for owner, name, original, missing in reversed(self._undo):
            if missing:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._undo.clear()
        self._replaced.clear()
