"""Makes the types of results for the page or for Python from their schemas, and so from the Columns.

result_types.py MOESIM FILE.ts|FILE.py   asks the program MOESIM for the schemas and writes FILE

A key that some kind of a result requires counts as there: whoever reads a kind knows what it holds."""

import json
import pathlib
import subprocess
import sys

MADE = "Made by tools/result_types.py from the columns of results."
RESULTS = ("compare", "plan", "replay", "validate", "validate-all", "validate-decisions", "validate-training", "whatif")
# Python's classes: what they are, their result and the key in it.
CLASSES = {
    "Scenario": ("One dispatcher, answered.", "compare", "scenarios"),
    "Winner": ("The recommended dispatcher against the others.", "compare", "winner"),
    "Recommendation": ("The dispatcher to run, and what that can cost: losses are shares of the fastest one's time (0.02: 2 % slower).",
                       "compare", "recommendation"),
    "Anchor": ("A run that was measured, and what it told. Where it is not `explained`, there is no recommendation.", "compare", "anchor"),
    "Plan": ("A plan of a training: where it runs, how, for how long and for how much.", "plan", "plans"),
}
schemas = {}


def schema(name):
    if name not in schemas:
        schemas[name] = json.loads(subprocess.run([program, "schema", name], check=True, capture_output=True, text=True).stdout)
    return schemas[name]


def found(part, root):
    """Returns a schema behind its references, and the document that it stands in."""
    while "$ref" in part:
        file, _, keys = part["$ref"].partition("#")
        part = root = schema(file.removesuffix(".schema.json")) if file else root
        for key in keys.split("/")[1:]:
            part = part[key]
    return part, root


def figures(part, root):
    """Yields key, whether it is there, what it means, and the schema of the value with its document."""
    there = {key for kind in [part, *part.get("anyOf", ())] for key in kind.get("required", ())}
    for key, value in part["properties"].items():
        inner, its_root = found(value, root)
        yield key, key in there, value.get("description") or inner.get("description", ""), inner, its_root


def kinds(part):
    names = part.get("type", [])
    return [names] if isinstance(names, str) else names


def is_interval(part):
    return list(part.get("properties", ())) == ["value", "low", "high"]


def typescript(part, root, indent=""):
    part, root = found(part, root)
    types = []
    for kind in kinds(part):
        inner = part.get("items", part.get("additionalProperties"))
        inner = typescript(inner, root, indent) if isinstance(inner, dict) else "any"
        if kind == "object" and is_interval(part):
            types.append("Estimate")
        elif kind == "object" and "properties" in part:
            types.append("{")
            for key, there, help, value, its_root in figures(part, root):
                types[-1] += f"\n{indent}  /** {help} */" if help else ""
                types[-1] += f"\n{indent}  {json.dumps(key)}{'' if there else '?'}: {typescript(value, its_root, indent + '  ')};"
            types[-1] += f"\n{indent}  [key: string]: any;" if indent and part.get("additionalProperties", True) is True else ""
            types[-1] += f"\n{indent}}}"
        elif kind == "string" and "enum" in part:
            types += [json.dumps(one) for one in part["enum"]]
        else:
            types.append({"object": f"Record<string, {inner}>", "array": f"({inner})[]", "integer": "number"}.get(kind, kind))
    return " | ".join(types) or "any"


def python(part, root):
    """The type of what a JSON value is in Python; objects are dicts."""
    part, root = found(part, root)
    names = [kind for kind in kinds(part) if kind != "null"]
    inner = part.get("items", part.get("additionalProperties"))
    types = {python(inner, root)} if isinstance(inner, dict) else {python(one[3], one[4]) for one in figures(part, root)} if "properties" in part else set()
    inner = types.pop() if len(types) == 1 else "float" if types == {"int", "float"} else "Any"
    type = {"object": f"Dict[str, {inner}]", "array": f"Tuple[{inner}, ...]", "integer": "int", "number": "float", "string": "str", "boolean": "bool"}
    one = type[names[0]] if len(names) == 1 else "Any"
    return f"Optional[{one}]" if "null" in kinds(part) else one


def python_class(name, what, result, key):
    part, root = found(schema(result)["properties"][key], schema(result))
    part, root = found(part.get("items", part), root)
    help, fields = [], []
    for key, there, meaning, value, its_root in figures(part, root):
        # As figure() of figures.py has it.
        peak = {"max", "rank"} <= set(value.get("properties", ()))
        type = "Estimate" if is_interval(value) else "float" if peak else python(value, its_root)
        type = type if there or type.startswith("Optional") else f"Optional[{type}]"
        help += [f"    {key}: {meaning}"] if meaning else []
        fields.append(f"    {key}: {type}" + (" = field(repr=False)" if "Any" in type else ""))
    return [f'@dataclass(frozen=True)\nclass {name}(Figures):\n    """{what}\n', *help, '    """\n', *fields, "\n"]


program, out = sys.argv[1:]
if out.endswith(".ts"):
    lines = [f"// {MADE}", "export type Estimate = { value: number; low: number; high: number };"]
    for name in RESULTS:
        lines.append(f"export type {name.title().replace('-', '')} = {typescript(schema(name), {})};")
else:
    lines = [f'"""{MADE}"""\n', "from dataclasses import dataclass, field", "from typing import Any, Dict, Optional, Tuple\n",
             "from .figures import Estimate, Figures\n\n"]
    lines += [line for name, about in CLASSES.items() for line in python_class(name, *about)]
pathlib.Path(out).write_text("\n".join(lines) + "\n")
