"""weir's plug-in for PyTorch, built for the programs here."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def built(folder):
    """The library; compiled in the folder where it is not up to date."""
    for command in (["cmake", "-S", ROOT / "python", "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
                    ["cmake", "--build", folder, "--target", "weir_plug_in"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return Path(folder) / "libweir_plug_in.so"
