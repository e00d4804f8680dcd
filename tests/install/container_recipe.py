#!/usr/bin/env python3
"""Reads tools/container/Containerfile as an engine does: container_recipe.py SOURCE_DIR
  checks it: only Debian's packages, all of them named in tools/packages.txt; what is copied is there; every folder
    that the build configures is copied; the packages that are installed are those that CPack makes.
container_recipe.py SOURCE_DIR --in FOLDER [NAME=VALUE ...]
  runs it without an engine: each stage in a bare Debian root below FOLDER (debootstrap, chroot), then a sweep on two
    ranks in the last. Needs root and Debian's mirror. NAME=VALUE are set in all steps; WITH=PACKAGE and BIND=FOLDER add a
    package and a folder of this machine to the roots, for a compiler cache.
"""
import glob
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

IMAGE = "docker.io/library/debian:bookworm-slim"
# Beside tools/packages.txt: what cpack asks for the packages that a program needs; ssh, by which mpirun starts other nodes.
BESIDE = {"dpkg-dev", "file", "openssh-client"}


def stages(text):
    """[(name, [(instruction, rest)])], lines that go on joined."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            image, *name = rest.split()
            if image != IMAGE:
                raise SystemExit("FROM %s, expected %s" % (image, IMAGE))
            found.append((name[-1] if name else "", []))
        elif word in ("RUN", "COPY", "ENV", "CMD"):
            found[-1][1].append((word, rest))
        else:
            raise SystemExit("an instruction that this test does not know: " + word)
    return found


def copies(rest):
    """(stage or "", sources, destination)"""
    words = rest.split()
    stage = words.pop(0).split("=")[1] if words[0].startswith("--from=") else ""
    return stage, words[:-1], words[-1]


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
    for _, steps in all_stages:
        for word, rest in steps:
            if word == "COPY":
                stage, sources, _ = copies(rest)
                for one in sources:
                    if not stage and not (source / one).exists():
                        wrong.append("COPY %s: not in the tree" % one)
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


class Root:
    """A stage in a bare root."""

    def __init__(self, path, env):
        self.path, self.env = path, dict(env, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root")
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", "--include=" + self.env.get("WITH", "ca-certificates"), "bookworm",
                        str(path)], check=True, stdout=subprocess.DEVNULL)

    def run(self, command):
        print("== " + command[:150], flush=True)
        mounts = [["mount", "-t", "proc", "proc", str(self.path / "proc")],
                  ["mount", "--bind", "/dev", str(self.path / "dev")]]
        if "BIND" in self.env:
            folder = self.path / self.env["BIND"].lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            mounts.append(["mount", "--bind", self.env["BIND"], str(folder)])
        done = []
        try:
            for mount in mounts:
                subprocess.run(mount, check=True)
                done.append(mount[-1])
            subprocess.run(["chroot", str(self.path), "/bin/sh", "-c", command], env=self.env, check=True)
        finally:
            for mount in reversed(done):
                subprocess.run(["umount", mount], check=True)


def run_in(source, folder, env):
    roots = {}
    for number, (name, steps) in enumerate(stages((source / "tools/container/Containerfile").read_text())):
        root = roots[name or str(number)] = Root(folder / (name or "last"), env)
        for word, rest in steps:
            if word == "RUN":
                root.run(rest)
            elif word == "ENV":
                root.env.update(one.split("=", 1) for one in shlex.split(rest))
            elif word == "COPY":
                stage, sources, to = copies(rest)
                base = roots[stage].path if stage else source
                target = root.path / to.lstrip("/")
                for one in sources:
                    for found in glob.glob(str(base / one.lstrip("/"))):
                        if os.path.isdir(found):
                            shutil.copytree(found, target, symlinks=True, dirs_exist_ok=True)
                        else:
                            (target if to.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
                            shutil.copy(found, target)
    root.run("moesim --version && cd /tmp && moesim sweep --model mixtral-8x7b --cluster dgx-h100x1 --ep 8 --grid topk=1..4 "
             "--out one.csv -q && mpirun --oversubscribe -n 2 moesim sweep --model mixtral-8x7b --cluster dgx-h100x1 --ep 8 "
             "--grid topk=1..4 --out two.csv -q && cmp one.csv two.csv && echo the same bytes on two ranks")
    subprocess.run(["du", "-sh", str(root.path)], check=True)
    return 0


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 3 and sys.argv[2] == "--in":
        sys.exit(run_in(where, pathlib.Path(sys.argv[3]), dict(one.split("=", 1) for one in sys.argv[4:])))
    sys.exit(check(where))
