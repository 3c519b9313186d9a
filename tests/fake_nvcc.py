"""A CUDA toolkit for the build's tests, whose nvcc lets g++ compile."""

import stat
import subprocess
import sys
from pathlib import Path

# A nvcc that answers like one and lets g++ compile. Beside it: `asked`, the words of
# each call but for questions, and `report`, what it says as ptxas.
NVCC = r"""#!{python}
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
if words == ["--version"]:
    print("Cuda compilation tools, release {version}, V{version}.61")
elif words == ["--list-gpu-code"]:
    print("\n".join("sm_" + n for n in "75 80 86 89 90 100".split()))
elif words[0] == "--dryrun":
    print(f'#$ LIBRARIES=  "-L{{here}}/stubs" "-L{{here}}/../bin/"', file=sys.stderr)
else:
    with open(os.path.join(here, "asked"), "a") as asked:
        print(*words, file=asked)
    if {fails!r}:
        sys.exit("x.cu(1): {fails}.")
    report = os.path.join(here, "report")
    if os.path.exists(report):
        print(open(report).read(), file=sys.stderr)
    host = []
    rest = iter(words)
    for word in rest:
        if word in ("-Xptxas", "-Xcompiler", "-Werror", "-ccbin"):
            next(rest)
        elif not word.startswith(("-gencode", "-cudart")):
            host.append(word)
    if not words[-1].endswith("probe.so"):
        sys.exit(subprocess.run(["g++", "-fPIC", "-x", "c++", *host]).returncode)
"""

MANGLED = "_ZN6ecornn4cuda11RunSequenceIfEEvv"
HELPER = "_ZN6ecornn4cuda15ApplyActivationIfEET_S2_"

# As ptxas 13.0 reports a kernel that calls a function, for two targets.
REPORT = f"""
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{MANGLED}' for 'sm_75'
ptxas info    : Function properties for {MANGLED}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 512 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 68.648 ms
ptxas info    : Function properties for {HELPER}
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '{MANGLED}' for 'sm_90'
ptxas info    : Function properties for {HELPER}
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for {MANGLED}
    40 bytes stack frame, 36 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""
CLEAN = REPORT.replace("36 bytes spill stores, 24", "0 bytes spill stores, 0")


def put_nvcc(folder: Path, version="12.8", fails="", report=CLEAN) -> Path:
    """Makes `folder` the home of a toolkit; returns its nvcc."""
    folder.joinpath("bin").mkdir(parents=True)
    nvcc = folder / "bin/nvcc"
    nvcc.write_text(NVCC.format(python=sys.executable, version=version, fails=fails))
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IEXEC)
    (folder / "bin/report").write_text(report)
    subprocess.run(["ar", "rcs", folder / "bin/libcudart_static.a"], check=True)
    return nvcc
