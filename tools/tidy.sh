#!/usr/bin/env bash
# Usage: tools/tidy.sh [--all | --since REVISION] [--minutes N] [FOLDER ...]
# Runs clang-tidy with the checks of .clang-tidy, as many files at a time as there are cores; exits 1 on any finding.
# Without --all on what changed since the merge base with origin/main or, where that is HEAD itself (a clone of main),
# since the commit 20 back; of a changed header on a source that includes it. The latest changes come first, tests last; with
# --minutes no file is begun after N minutes, and those left out are counted. With FOLDERs only below them.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/arguments.sh
help_if_asked "$@"
fail() { echo "tidy.sh: $*" >&2; exit 2; }
all='' since='' minutes='' folders=()
while (($#)); do
  case $1 in
    --all) all=yes ;;
    --since)
      since=${2:-}
      git rev-parse -q --verify "$since^{commit}" >/dev/null || fail "--since: found '$since', expected a revision"
      shift
      ;;
    --minutes)
      minutes=${2:-}
      [[ $minutes =~ ^[1-9][0-9]*$ ]] || fail "--minutes: found '$minutes', expected a number of minutes"
      shift
      ;;
    *)
      [[ -d $1 ]] || refuse_argument "$1"
      folders+=("${1%/}")
      ;;
  esac
  shift
done
[[ -z $all || -z $since ]] || fail "found --all and --since, expected one of them"
command -v clang-tidy >/dev/null || fail "found no clang-tidy (Debian: apt-get install clang-tidy)"
[[ -f build/compile_commands.json ]] || fail "found no build/compile_commands.json (tools/setup.sh configures build/)"

# The commit to compare with; empty in a clone that has no other.
base_commit() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || true
  [[ -n $base && $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-list --first-parent -n 21 HEAD | tail -n 1)
  [[ $base == "$(git rev-parse HEAD)" ]] || echo "$base"
}

# Sources and headers to look at, the latest changes first.
changed_files() {
  if [[ -z $all && -z $since ]]; then
    since=$(base_commit)
    [[ -n $since ]] || all=yes
  fi
  if [[ $all ]]; then
    git ls-files -- '*.cc' '*.h'
    return
  fi
  { git ls-files --modified --others --exclude-standard
    git diff --name-only --cached
    git log --format= --name-only "$since..HEAD"; } | grep -E '\.(cc|h)$' | awk '!seen[$0]++' || true
}

# g++'s precompiled headers are none for clang, and without them a source has to include what it uses.
mkdir -p build/tidy
changed_files >build/tidy/changed.txt
python3 - "${folders[@]}" >build/tidy/sources.txt <<'PYTHON'
import json, os, re, sys

top = os.getcwd()
commands = json.load(open("build/compile_commands.json"))
for command in commands:
    command["command"] = re.sub(r" -Winvalid-pch| -fpch-preprocess| -include \S*cmake_pch\.hxx", "", command["command"])
    command["command"] += " -Wno-unknown-warning-option"
json.dump(commands, open("build/tidy/compile_commands.json", "w"))

sources = {os.path.relpath(command["file"], top) for command in commands}
includers = {}
tracked = os.popen("git ls-files --cached --others --exclude-standard -- '*.cc' '*.h'").read().split()
for path in filter(os.path.exists, tracked):
    for name in re.findall(r'^#include "([^"]+)"', open(path, encoding="utf-8").read(), re.M):
        beside = os.path.join(os.path.dirname(path), name)
        includers.setdefault(beside if os.path.exists(beside) else name, []).append(path)

def source_of(path):
    """The source itself, the header's own one, or one that includes the header."""
    waiting, seen = [path], {path}
    while waiting:
        path = waiting.pop(0)
        own = os.path.splitext(path)[0] + ".cc"
        if own in sources:
            return own
        for includer in sorted(includers.get(path, [])):
            if includer not in seen:
                seen.add(includer)
                waiting.append(includer)
    return None

chosen = []
for path in open("build/tidy/changed.txt").read().split():
    if not os.path.exists(path) or sys.argv[1:] and not any(path.startswith(folder + "/") for folder in sys.argv[1:]):
        continue
    source = source_of(path)
    if source is None:
        print(f"tidy.sh: {path} is in no build here: left out", file=sys.stderr)
    elif source not in chosen:
        chosen.append(source)
chosen.sort(key=lambda source: source.startswith("tests/"))
print("".join(source + "\n" for source in chosen), end="")
PYTHON

export TIDY_END=$((minutes ? $(date +%s) + 60 * minutes : 0))
check_one() {
  if ((TIDY_END && $(date +%s) >= TIDY_END)); then
    echo "$1" >>build/tidy/left_out.txt
    return 0
  fi
  local said
  said=$(clang-tidy -p build/tidy --quiet "$1" 2>build/tidy/stderr.$$) && rm -f build/tidy/stderr.$$ && return 0
  printf '%s\n' "${said:-$(cat build/tidy/stderr.$$)}"
  rm -f build/tidy/stderr.$$
  return 1
}
export -f check_one
: >build/tidy/left_out.txt
status=0
xargs -r -a build/tidy/sources.txt -P "$(nproc)" -I{} bash -c 'check_one "$1"' check_one {} || status=1
left_out=$(wc -l <build/tidy/left_out.txt)
printf '== clang-tidy: %d sources, %s%s\n' "$(($(wc -l <build/tidy/sources.txt) - left_out))" \
  "$( ((status)) && echo 'findings above' || echo 'no findings')" "$( ((left_out)) && echo "; $left_out not begun in $minutes minutes")"
exit $status
