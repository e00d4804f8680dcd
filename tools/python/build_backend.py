"""Builds the wheel of the package `moesim` for pip (PEP 517): CMake compiles it, this packs it. Same input, same bytes.

    pip install .                          builds in build/, as tools/quickstart.sh does, or takes what it built
    pip install . --config-settings build-dir=FOLDER   in another build folder
    pip wheel . -w FOLDER                  the wheel alone

The wheel is for the Python and the machine that it was built on: it links Debian's fmt, yaml-cpp, toml++, OpenSSL and
Boost.Graph, which have to be there.
"""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PANDAS = "Provides-Extra: pandas\nRequires-Dist: pandas; extra == 'pandas'\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build = SOURCE / (config_settings or {}).get("build-dir", "build")
    if not (build / "CMakeCache.txt").exists():
        subprocess.run(["cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMOESIM_BUILD_TESTS=OFF",
                        "-DMOESIM_BUILD_BENCH=OFF", f"-DPython3_EXECUTABLE={sys.executable}"], check=True)
    targets = subprocess.run(["cmake", "--build", build, "--target", "help"], check=True, capture_output=True, text=True).stdout
    if not re.search(r"\bmoesim_python\b", targets):
        sys.exit(f"{build}: found no Python package, expected pybind11-dev and python3-dev when it was configured")
    subprocess.run(["cmake", "--build", build, "--target", "moesim_python", "moesim_python_files"], check=True)
    package = build / "python/moesim"
    if not (package / f"_moesim{sysconfig.get_config_var('EXT_SUFFIX')}").exists():
        sys.exit(f"{build}: found a package of another Python, expected one of {sys.executable}; --config-settings build-dir=FOLDER builds anew")
    return packed(package, pathlib.Path(wheel_directory))


def packed(package, folder):
    version = re.search(r"project\(moesim VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    tag = f"cp{python}-cp{python}-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    about = f"moesim-{version}.dist-info"
    module = f"_moesim{sysconfig.get_config_var('EXT_SUFFIX')}"
    files = {f"moesim/{one.name}": one.read_bytes() for one in sorted(package.iterdir())
             if one.is_file() and (one.suffix != ".so" or one.name == module)}
    files[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: moesim\nVersion: {version}\n"
        "Summary: What a mixture-of-experts training job costs on hardware you do not own yet\n"
        f"Requires-Python: >=3.{sys.version_info.minor},<3.{sys.version_info.minor + 1}\n{PANDAS}"
    ).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: moesim\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()
    wheel = folder / f"moesim-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return os.path.basename(wheel)


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("moesim: found a build of a source distribution, expected a clone: git holds the sources")
