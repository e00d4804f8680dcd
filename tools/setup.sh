#!/usr/bin/env bash
# Installs what the build and the tests need and configures build/. Called by quickstart.sh and test.sh; run it alone
# to prepare a machine. Asks nothing; does nothing that is done already.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
install() {
  local as_root=()
  [[ $(id -u) -eq 0 ]] || as_root=(sudo)
  command -v "${as_root[@]:-env}" >/dev/null || { echo "setup.sh: not root and no sudo; install: $*" >&2; return 2; }
  "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# Debian package names, one a line, # comments.
packages=$(sed 's/#.*//' tools/packages.txt | xargs)
missing=()
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  say "installing: ${missing[*]}"
  install "${missing[@]}"
else
  say "all packages are installed"
fi

# Optional packages, for reports and their tests: a package and the command that needs it, one per line.
optional=()
while read -r package command; do
  [[ -n $package ]] && ! command -v "$command" >/dev/null && optional+=("$package")
done < <(sed 's/#.*//' tools/packages_optional.txt)
if ((${#optional[@]})) && [[ -z ${MOESIM_WITHOUT_REPORTS:-} ]]; then
  say "installing for HTML reports and some tests: ${optional[*]}"
  install "${optional[@]}" ||
    say "not installed: ${optional[*]}; moesim builds without what they are for (--report, its tests), and says so"
fi

source tools/compiler_cache.sh
say "configuring build/"
cmake --preset release "$@" >build.configure.log 2>&1 || { cat build.configure.log >&2; rm -f build.configure.log; exit 2; }
mv build.configure.log build/configure.log
