"""Questions as the package completes them: python3 questions.py BUILD/python IN OUT.

Each line of IN is [a scenario, keywords], each line of OUT the complete scenario that moesim.scenario() returns for it."""

import json
import sys

sys.path.insert(0, sys.argv[1])
import moesim  # noqa: E402

with open(sys.argv[2]) as questions, open(sys.argv[3], "w") as out:
    for line in questions:
        scenario, keywords = json.loads(line)
        print(json.dumps(moesim.scenario(scenario, **keywords)), file=out)
