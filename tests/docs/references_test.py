"""Tests of references.py."""
import pathlib
import tempfile
import unittest

import references


class References(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.page = self.root / "docs" / "a.md"
        self.page.parent.mkdir()

    def test_links(self):
        text = "# One, `two`: three\n[x](a.md) [y](#one-two-three) [z](https://example.org/#n) [w](b.md) [v](a.md#four)\n" \
               "```\n# no heading\n[u](nowhere)\n```\n"
        self.page.write_text(text)
        self.assertEqual(list(references.broken_links(self.page, text)),
                         ["b.md: no such file", "a.md#four: no such heading"])

    def test_repeated_headings_are_numbered(self):
        self.assertEqual(references.anchors("# A b\n## A b\n"), {"a-b", "a-b-1"})

    def test_citations(self):
        self.page.write_text("## 1. First\n### 1.2 Second\n")
        (self.root / "models").mkdir()
        (self.root / "models" / "costs").mkdir()
        text = ("// docs/a.md, docs/a.md 1, docs/a.md 1.2. Then docs/a.md 1.3; docs/b.md 7\n"
                "// owner/name docs/c.md, owner/name, docs/c.md; models/costs docs/d.md")
        self.assertEqual(list(references.broken_citations(self.root, text)),
                         ["docs/a.md 1.3: no such section", "docs/b.md: no such file", "docs/d.md: no such file"])
