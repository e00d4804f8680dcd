"""Runs the examples of docs/python.md as a reader types them, and compares what they print ("..." stands for anything).

python3 documented_test.py BUILD/python SOURCE
"""

import doctest
import os
import pathlib
import re
import sys

sys.path.insert(0, sys.argv[1])
source = pathlib.Path(sys.argv[2])
page = (source / "docs/python.md").read_text()
os.chdir(source)
# A fence is no output.
examples = re.sub(r"^```.*$", "", page, flags=re.M)
test = doctest.DocTestParser().get_doctest(examples, {}, "docs/python.md", "docs/python.md", 0)
if len(test.examples) < 8:
    sys.exit(f"docs/python.md: found {len(test.examples)} examples, expected those of a tour")
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
runner.run(test)
print(f"{runner.tries} examples, {runner.failures} failed")
sys.exit(runner.failures > 0)
