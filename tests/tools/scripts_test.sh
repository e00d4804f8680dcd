#!/usr/bin/env bash
# scripts_test.sh SOURCE SCRATCH: tools/*.sh say how they are used and refuse what they do not know, before they do anything.
set -euo pipefail
source=$1 scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/tools" "$scratch/path"
cp "$source"/tools/*.{sh,txt} "$scratch/tools/"
# Commands with which a script would begin leave a mark here.
for command in cmake ctest apt-get dpkg-query clang-tidy; do
  printf '#!/bin/sh\ntouch "%s/started"\nexit 1\n' "$scratch" >"$scratch/path/$command"
  chmod +x "$scratch/path/$command"
done
export PATH="$scratch/path:$PATH"
fail() { echo "$*" >&2; exit 1; }

# check SCRIPT EXIT_CODE ARGUMENTS...: leaves what was printed in out and err.
check() {
  local script=$1 expected=$2 code=0
  shift 2
  "$scratch/tools/$script" "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
  [[ ! -e $scratch/started ]] || fail "$script $*: began to work"
  ((code == expected)) || fail "$script $*: exit $code, expected $expected: $(cat "$scratch/err")"
}

for script in quickstart.sh test.sh sanitize.sh tidy.sh; do
  for option in --help -h; do
    check "$script" 0 "$option"
    grep -q "^Usage: tools/$script" "$scratch/out" || fail "$script $option: no usage in: $(cat "$scratch/out")"
    [[ ! -s $scratch/err ]] || fail "$script $option: $(cat "$scratch/err")"
  done
  for arguments in --fast "one two" "one two three"; do
    check "$script" 2 $arguments
    [[ $(wc -l <"$scratch/err") == 1 && ! -s $scratch/out ]] || fail "$script $arguments: not one line: $(cat "$scratch/err")"
    grep -q "^$script: found '.*', expected tools/$script" "$scratch/err" || fail "$script $arguments: $(cat "$scratch/err")"
  done
done
check sanitize.sh 2 address memory
check tidy.sh 2 --since no-such-revision
# The regular expression of tests is let through: the script begins.
"$scratch/tools/test.sh" '^sim\.' >/dev/null 2>&1 || true
[[ -e $scratch/started ]] || fail "test.sh '^sim\\.': did not begin"
