#!/usr/bin/env bash
# Installs the packages that hpvmd needs on Debian 12. Idempotent: installed packages stay as they are. Needs root or sudo.
#   deploy/setup.sh [--tests] [--containers]
#     (nothing)      packages for building and running
#     --tests        also packages for tests, benchmarks, the clang and fuzz presets and deploy/bundle.sh
#     --containers   also podman and mmdebstrap for deploy/image.sh
set -euo pipefail

packages=(
  # Building.
  g++ cmake ninja-build ccache mold pkg-config git python3
  # Kernels: the compiler that authors use, and the back end's LLVM.
  clang-22 lld-22 llvm-22-dev libclang-22-dev wabt
  # Libraries; docs/decisions has the reasons for each.
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  nlohmann-json3-dev libspdlog-dev libtomlplusplus-dev libcli11-dev
  libssl-dev libnghttp2-dev libseccomp-dev libpng-dev libzip-dev zlib1g-dev libzstd-dev
  libsqlite3-dev libpqxx-dev libpq-dev libhwloc-dev prometheus-cpp-dev libmicrohttpd-dev libcurl4-openssl-dev
  # GPUs: the loaders, and the readers of modules.
  ocl-icd-opencl-dev ocl-icd-libopencl1 opencl-headers libvulkan-dev spirv-headers spirv-tools
  llvm-15-dev libllvmspirvlib-15-dev libclc-22
  # The Python client, and the examples' checks.
  python3-numpy python3-grpcio python3-protobuf
)
tests=(
  # Kernels in other languages, and sanitizers' libraries.
  libclang-rt-22-dev libclang-rt-22-dev-wasm32 wasi-libc rustc libstd-rust-dev-wasm32
  # Drivers that need no GPU.
  mesa-vulkan-drivers vulkan-validationlayers glslang-tools llvm-spirv-15 pocl-opencl-icd opencl-c-headers
  # deploy/bundle.sh; NVIDIA's Vulkan driver needs libEGL on machines without a display.
  patchelf xz-utils zstd libegl1 libglvnd0
  # The tests of packages, and of alarms and dashboards.
  dpkg-dev mmdebstrap logrotate prometheus
  # PostgreSQL, of which tests and deploy/cluster-demo.sh start servers of their own.
  postgresql-15
  # Tests and benchmark peers.
  libgtest-dev libgmock-dev libmpfr-dev libvalijson-dev libtbb-dev libstarpu-dev nodejs binaryen
  # The Python client's tests: types, wheels, tensors of torch, bars, notebooks and their pictures.
  python3-mypy python3-pip python3-setuptools python3-wheel python3-torch python3-tqdm python3-nbclient python3-ipykernel
  python3-matplotlib
  python3-mpmath libomp-22-dev libopenblas-dev libopenblas0-pthread bubblewrap
)
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=("${tests[@]}") ;;
    --containers) packages+=(podman buildah runc mmdebstrap iptables) ;;
    *) echo "usage: deploy/setup.sh [--tests] [--containers]" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
    missing+=("$package")
  fi
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: everything is installed (${#packages[@]} packages)."
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Tests start a Prometheus of their own; the package's service must not start.
if [[ " ${missing[*]} " == *" prometheus "* ]] && [ -d /run/systemd/system ]; then
  "${as_root[@]}" systemctl mask -q prometheus.service
fi
# Debian's package would make a database of its own and start it.
if [[ " ${missing[*]} " == *" postgresql-15 "* ]] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  "${as_root[@]}" mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
"${as_root[@]}" apt-get update -q >/dev/null
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done."
