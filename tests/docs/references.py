"""Everything a document or a comment refers to is there: references.py SOURCE_FOLDER

Links of the documents and their anchors, files named as docs/NAME.md, and sections cited as docs/NAME.md 1.2. A page of
another repository ("bytedance/flux docs/performance.md") is left alone.
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
CITATION = re.compile(r"(?:\b([\w-]+/[\w-]+),? )?\b(docs/[\w-]+\.md)(?: (\d+(?:\.\d+)*)\b)?")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md", ".js", ".in"}


def prose(text):
    """The document without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """Returns GitHub's anchors of the headings."""
    seen, out = {}, set()
    for heading in re.findall(r"^#+ (.*)$", prose(text), flags=re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        out.add(name if name not in seen else f"{name}-{seen[name]}")
        seen[name] = seen.get(name, 0) + 1
    return out


def sections(text):
    """Numbers of the headings: "### 1.2 Sizes" is 1.2."""
    return set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", prose(text), flags=re.MULTILINE))


def broken_links(page, text):
    for target in LINK.findall(prose(text)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{target}: no such heading"


def broken_citations(root, text):
    for repository, file, section in CITATION.findall(text):
        if repository and not (root / repository).exists():
            continue
        if not (root / file).exists():
            yield f"{file}: no such file"
        elif section and section not in sections((root / file).read_text()):
            yield f"{file} {section}: no such section"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    files = [root / name for name in listed if name] or [
        p for p in root.rglob("*") if not {"build", "node_modules"} & set(p.relative_to(root).parts)]
    wrong, links, citations = [], 0, 0
    for file in files:
        if file.suffix not in SOURCES or not file.is_file() or file.name.startswith("references"):
            continue
        text = file.read_text()
        if file.suffix == ".md":
            links += len(LINK.findall(prose(text)))
            wrong += [f"{file.relative_to(root)}: {what}" for what in broken_links(file, text)]
        citations += len(CITATION.findall(text))
        wrong += [f"{file.relative_to(root)}: {what}" for what in broken_citations(root, text)]
    print("\n".join(wrong + [f"{links} links, {citations} citations, {len(wrong)} broken"]))
    return 1 if wrong or not links or not citations else 0


if __name__ == "__main__":
    sys.exit(main())
