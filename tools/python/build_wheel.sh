#!/usr/bin/env bash
# Builds the wheel of the package `moesim` from a build folder that holds it; needs no network and nothing but Python.
#
#   tools/python/build_wheel.sh [--build BUILD] [FOLDER]      writes FOLDER/moesim-*.whl (default: build/wheels)
#   pip install FOLDER/moesim-*.whl
#
# The wheel is for the Python and the machine that it was built on: it links Debian's fmt, yaml-cpp, toml++, OpenSSL
# and Boost.Graph, which have to be there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build
if [[ ${1:-} == --build ]]; then
  build=$2
  shift 2
fi
out=${1:-$build/wheels}
package=$build/python/moesim
if ! compgen -G "$package/_moesim.*.so" >/dev/null; then
  echo "SKIPPED: $build holds no Python package; install pybind11-dev and python3-dev, configure and build" >&2
  exit 77
fi
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
mkdir -p "$out"
exec python3 "$here/pack_wheel.py" "$package" "$version" "$out"
