# Sourced by the `run` scripts: makes sure that what they need is there. Installs with apt-get where that is allowed
# (root, or sudo without a password); otherwise says in one line what is missing and how to get it, and exits with 1.
#
#   need g++ cmake ninja ...   tools and libraries, by the names in package_of
#   need_cuda                  the CUDA Toolkit's headers; sets `cuda_arguments`, the arguments that tell CMake of them

package_of() {
  case $1 in
    ninja) echo ninja-build ;;
    doctest) echo doctest-dev ;;
    benchmark) echo libbenchmark-dev ;;
    clang++) echo clang ;;
    clang-sanitizers) echo "libclang-rt-$(clang++ -dumpversion 2>/dev/null | cut -d. -f1 | grep . || echo 14)-dev" ;;
    zlib) echo zlib1g-dev ;;
    matplotlib) echo python3-matplotlib ;;
    pip) echo python3-pip ;;
    *) echo "$1" ;;
  esac
}

# Prints the first Python that has a module: that on the path, or Debian's, for which its packages are.
python_with() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c "import $1" 2>/dev/null && echo "$python" && return
  done
}

is_there() {
  case $1 in
    doctest) g++ -x c++ -fsyntax-only - <<<'#include <doctest/doctest.h>' 2>/dev/null ;;
    benchmark) g++ -x c++ -fsyntax-only - <<<'#include <benchmark/benchmark.h>' 2>/dev/null ;;
    zlib) g++ -x c++ -fsyntax-only - <<<'#include <zlib.h>' 2>/dev/null ;;
    clang-sanitizers) clang++ -fsanitize=address -x c++ -o /dev/null - <<<'int main() {}' 2>/dev/null ;;
    lld) command -v ld.lld >/dev/null ;;
    matplotlib) [ -n "$(python_with matplotlib)" ] ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# As root, or through sudo if it asks for no password; nothing where neither may be.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi </dev/null
}
may_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

install() {
  local log
  echo "installing: $*" >&2
  log=$({ as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@"; } 2>&1) || echo "$log" >&2
}

need() {
  local name packages=()
  for name in "$@"; do is_there "$name" || packages+=("$(package_of "$name")"); done
  [ ${#packages[@]} = 0 ] && return
  may_install && install "${packages[@]}"
  for name in "$@"; do
    is_there "$name" && continue
    echo "missing: ${packages[*]}; get it with: sudo apt-get install ${packages[*]}" >&2
    exit 1
  done
}

# Prints the release of an nvcc, as 13.0; nothing if it is older than 12.2 (Debian's own nvidia-cuda-toolkit is 11.8).
new_enough() {
  "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p' |
    awk -F. '$1 > 12 || ($1 == 12 && $2 >= 2)'
}

need_cuda() {
  cuda_arguments=()
  local folder
  for folder in "$(dirname "$(command -v nvcc || echo /none/nvcc)")" "${CUDA_PATH:-/none}/bin" "${CUDA_HOME:-/none}/bin" \
    /usr/local/cuda*/bin /opt/cuda/bin; do
    if [ -n "$(new_enough "$folder/nvcc")" ]; then
      export PATH="$folder:$PATH"
      cuda_arguments=("-DCUDAToolkit_ROOT=$(dirname "$folder")")
      return
    fi
  done
  # No toolkit: NVIDIA's packages for Python carry the headers, and the simulated runtime needs no more.
  local headers=$PWD/build/cuda-headers
  if ! [ -e "$headers/nvidia/cu13/include/crt/host_defines.h" ]; then
    echo "no CUDA Toolkit of version 12.2 or newer found; fetching its headers from PyPI" >&2
    is_there pip || ! may_install || install python3-pip
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --only-binary :all: --target "$headers" \
      'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*' >&2 || {
      echo "missing: CUDA Toolkit 12.2 or newer (Debian's nvidia-cuda-toolkit is too old); get it from" \
        "https://developer.nvidia.com/cuda-downloads, or set CUDA_PATH to where it is" >&2
      exit 1
    }
  fi
  cuda_arguments=("-DWEIR_CUDA_INCLUDE_DIR=$headers/nvidia/cu13/include")
}

# What programs run on: WEIR_RUNTIME if it is set, else the GPU if one answers, else the simulated runtime.
runtime() {
  if [ -n "${WEIR_RUNTIME:-}" ]; then
    echo "$WEIR_RUNTIME"
  elif nvidia-smi -L 2>/dev/null | grep -q 'GPU 0'; then
    echo cuda
  else
    echo sim
  fi
}
