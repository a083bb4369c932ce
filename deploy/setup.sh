#!/usr/bin/env bash
# Installs what building, testing and running hpvmd needs on Debian 12. Idempotent: what is there is left alone. Needs root or sudo.
#   deploy/setup.sh [--containers]     --containers adds podman and mmdebstrap for deploy/image.sh
set -euo pipefail

packages=(
  # Building.
  g++ cmake ninja-build ccache mold pkg-config git python3
  # Kernels: the compiler that authors use, and the back end's LLVM.
  clang-22 lld-22 llvm-22-dev libclang-22-dev libclang-rt-22-dev libclang-rt-22-dev-wasm32 wasi-libc wabt
  rustc libstd-rust-dev-wasm32
  # Libraries, each argued in docs/decisions.
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  nlohmann-json3-dev libspdlog-dev libtomlplusplus-dev libcli11-dev
  libssl-dev libnghttp2-dev libseccomp-dev libpng-dev libzip-dev zlib1g-dev
  libsqlite3-dev prometheus-cpp-dev libmicrohttpd-dev libcurl4-openssl-dev
  # GPUs: the loaders, the readers of modules, and drivers that need no GPU for the tests.
  ocl-icd-opencl-dev opencl-headers libvulkan-dev spirv-headers spirv-tools llvm-15-dev libllvmspirvlib-15-dev libclc-22
  mesa-vulkan-drivers vulkan-validationlayers glslang-tools llvm-spirv-15
  # deploy/bundle.sh; NVIDIA's Vulkan driver wants libEGL where there is no display.
  patchelf xz-utils zstd libzstd-dev libegl1 libglvnd0
  # Tests and benchmark peers.
  libgtest-dev libgmock-dev libmpfr-dev libvalijson-dev libtbb-dev libstarpu-dev python3-numpy nodejs binaryen
  python3-mpmath libomp-22-dev libopenblas-dev libopenblas0-pthread pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers
  bubblewrap
)
case "${1:-}" in
  "") ;;
  --containers) packages+=(podman buildah runc mmdebstrap iptables) ;;
  *) echo "usage: deploy/setup.sh [--containers]" >&2; exit 2 ;;
esac

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
"${as_root[@]}" apt-get update -q >/dev/null
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done."
