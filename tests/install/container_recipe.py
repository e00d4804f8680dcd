#!/usr/bin/env python3
"""Checks tools/container/Containerfile without an engine: container_recipe.py SOURCE_DIR
Only Debian's packages, all of them named in tools/packages.txt; what is copied is there; every folder that the build
configures is copied; the packages that are installed are those that CPack makes.
"""
import pathlib
import re
import sys

IMAGE = "docker.io/library/debian:bookworm-slim"
# Beside tools/packages.txt: what cpack asks for the packages that a program needs; ssh, by which mpirun starts other nodes.
BESIDE = {"dpkg-dev", "file", "openssh-client"}


def stages(text):
    """[[(instruction, rest)]], lines that go on joined."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            if rest.split()[0] != IMAGE:
                raise SystemExit("FROM %s, expected %s" % (rest, IMAGE))
            found.append([])
        elif word in ("RUN", "COPY", "ENV", "CMD"):
            found[-1].append((word, rest))
        else:
            raise SystemExit("an instruction that this test does not know: " + word)
    return found


def installed(run):
    """Words of `apt-get install`."""
    words = re.findall(r"apt-get install((?:\s+[^&|;]+)?)", run)
    return [word for part in words for word in re.sub(r"\$\([^)]*\)", " @list ", part).split() if not word.startswith("-")]


def check(source):
    wrong = []
    known = {line.split("#")[0].strip() for line in (source / "tools/packages.txt").read_text().splitlines()} | BESIDE
    all_stages = stages((source / "tools/container/Containerfile").read_text())
    made = {"moesim", "moesim-mpi"}
    cpack = (source / "cmake/Install.cmake").read_text()
    for name in made:
        if "_PACKAGE_NAME %s)" % name not in cpack:
            wrong.append("cmake/Install.cmake makes no package " + name)
    copied = set()
    for steps in all_stages:
        for word, rest in steps:
            if word == "COPY":
                *sources, _ = rest.split()
                if not sources[0].startswith("--from="):
                    wrong += ["COPY %s: not in the tree" % one for one in sources if not (source / one).exists()]
                copied.update(sources)
            elif word == "RUN":
                for package in installed(rest):
                    deb = re.fullmatch(r"/packages/([a-z0-9-]+)_\*\.deb", package)
                    if deb and deb.group(1) not in made or not deb and package != "@list" and package not in known:
                        wrong.append("installs %s: in no list of packages" % package)
                for bad in ("curl", "wget", "pip ", "npm ", "http:", "https:"):
                    if bad in rest:
                        wrong.append("a step that takes more than Debian's packages: " + bad)
    listed = re.findall(r"^add_subdirectory\((\w+)\)", (source / "CMakeLists.txt").read_text(), re.M)
    listed += re.findall(r"foreach\(folder ([\w ]+)\)", cpack)[0].split()
    for folder in set(listed) - {"tests"}:
        if folder not in copied:
            wrong.append("no COPY of %s, which the build configures" % folder)
    if len(all_stages) != 2 or len(listed) < 5:
        wrong.append("%d stages and %d folders, expected 2 and at least 5" % (len(all_stages), len(listed)))
    for line in wrong:
        print("FAILED: tools/container/Containerfile: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(check(pathlib.Path(sys.argv[1])))
