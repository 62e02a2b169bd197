"""Holds dashboards against Grafana's schema, as Grafana's own library for making dashboards has it.

A dashboard is read into the library's types and written again: a field that is not in the schema is not there any more, one of another
type is an error or has changed. Usage: check-dashboards.py FILE...
"""

import copy
import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(ours, theirs, path=""):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from differences(value, theirs[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: not in the schema, or null"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs)):
            yield from differences(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is read as {theirs!r}"


def problems(dashboard):
    try:
        read = Dashboard.from_json(copy.deepcopy(dashboard))
        written = json.loads(json.dumps(read, cls=JSONEncoder))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [f"cannot be read: {type(error).__name__}: {error}"]
    return list(differences(dashboard, written))


def main(paths):
    plugins.register_default_plugins()
    found = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            dashboard = json.load(file)
        for problem in problems(dashboard):
            print(f"{path}: {problem}", file=sys.stderr)
            found += 1
        # A check must find the mistake in a wrong dashboard.
        for spoil in (
            lambda wrong: wrong.update(titel="misspelt"),
            lambda wrong: wrong["panels"][1].update(gridPosition={}),
            lambda wrong: wrong["panels"][1]["fieldConfig"]["defaults"].update(unitt="s"),
            lambda wrong: wrong["panels"][1].update(options="none"),
        ):
            wrong = copy.deepcopy(dashboard)
            spoil(wrong)
            if not problems(wrong):
                print(f"{path}: a wrong field is not found", file=sys.stderr)
                found += 1
    print(f"{len(paths)} dashboards, {found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
