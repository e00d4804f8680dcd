"""Packs a built package as a wheel (PEP 427): pack_wheel.py PACKAGE VERSION FOLDER. Same input, same bytes."""

import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import zipfile

package, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
module = next(package.glob("_moesim.*.so"))
python = re.match(r"_moesim\.cpython-(\d+)-", module.name).group(1)
platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
tag = f"cp{python}-cp{python}-{platform}"
about = f"moesim-{version}.dist-info"

files = {f"moesim/{one.name}": one.read_bytes() for one in sorted(package.iterdir()) if one.is_file()}
files[f"{about}/METADATA"] = (
    f"Metadata-Version: 2.1\nName: moesim\nVersion: {version}\n"
    "Summary: What a mixture-of-experts training job costs on hardware you do not own yet\n"
    f"Requires-Python: >=3.{python[1:]},<3.{int(python[1:]) + 1}\n"
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
print(wheel)
