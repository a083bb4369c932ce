#!/usr/bin/env bash
# Packs hpvmd with every library that it needs, except the C library, into archives that run from any folder of any x86-64 Linux with
# glibc 2.36 or newer, without installation.
#   deploy/bundle.sh [--build FOLDER] [--output FOLDER] [--tests] [--cpu-peers] [--fast]
#     --build      a finished build; build/release by default
#     --output     the folder for the archives; build/bundle by default
#     --tests      also the test programs for GPUs
#     --cpu-peers  also the OpenMP and StarPU peers of `hpvm-bench`
#     --fast       zstd instead of xz: a sixth larger, packed in seconds
# Writes hpvmd-VERSION-linux-x86_64.tar.xz and, if kernel-flavoured SPIR-V is built in, hpvmd-VERSION-spirv-linux-x86_64.tar.xz, which is
# unpacked over the first: LLVM 15 and the translator, which only such modules need.
# A build configured with -DHPVMD_STATIC_LLVM=ON makes archives of half the size. Needs patchelf and xz (or zstd).
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
output=build/bundle
tests=false
peers=false
fast=false
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build takes a folder}; shift ;;
    --output) output=${2:?--output takes a folder}; shift ;;
    --tests) tests=true ;;
    --cpu-peers) peers=true ;;
    --fast) fast=true ;;
    *) echo "usage: deploy/bundle.sh [--build FOLDER] [--output FOLDER] [--tests] [--cpu-peers] [--fast]" >&2; exit 2 ;;
  esac
  shift
done
version=$(sed -n 's/^project(hpvmd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=hpvmd-$version-linux-x86_64
programs=(hpvmd hpvmctl hpvm-executor hpvm-compiler hpvm-bench)
# Libraries opened by name at run time: the loaders, and those that NVIDIA's Vulkan driver needs on machines without a display.
loaded=(libOpenCL.so.1 libvulkan.so.1 libEGL.so.1 libGLdispatch.so.0)
# Libraries of the C library's package, which always come from the machine.
is_own='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libnss_[a-z]*)\.so'

fail() { echo "bundle: $1" >&2; exit 1; }
command -v patchelf >/dev/null || fail "patchelf is missing; deploy/setup.sh --tests installs it."
for program in "${programs[@]}"; do
  [ -x "$build/bin/$program" ] || fail "$build/bin/$program is missing; build it first."
done
work=$(mktemp -d "${TMPDIR:-/tmp}/hpvmd-bundle-XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/$name
mkdir -p "$root/bin" "$root/lib" "$root/share/hpvm" "$output"

# Copies a program, stripped, and lets it look for libraries in ../lib. RPATH rather than RUNPATH, because it also applies to the
# libraries' own dependencies and to drivers.
add_program() {  # FILE FOLDER
  strip -o "$root/$2/$(basename "$1")" "$1"
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$root/$2/$(basename "$1")"
}
# Copies the libraries that the files load to the folder.
add_libraries() {  # FOLDER FILE...
  local folder=$1
  shift
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u | while read -r library path; do
    if [[ ! $library =~ $is_own ]] && [ ! -e "$root/lib/$library" ] && [ ! -e "$folder/$library" ]; then
      strip -o "$folder/$library" "$(readlink -f "$path")"
      patchelf --force-rpath --set-rpath '$ORIGIN' "$folder/$library"
    fi
  done
}

for program in "${programs[@]}"; do
  add_program "$build/bin/$program" bin
done
# hpvm-compiler loads this library from its own folder.
add_program "$build/bin/libhpvm-opencl.so" bin
add_libraries "$root/lib" "${programs[@]/#/$build/bin/}" "$build/bin/libhpvm-opencl.so"
for library in "${loaded[@]}"; do
  path=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ && !found++ {print $NF}')
  if [ -n "$path" ] && [ ! -e "$root/lib/$library" ]; then
    strip -o "$root/lib/$library" "$(readlink -f "$path")"
    patchelf --force-rpath --set-rpath '$ORIGIN' "$root/lib/$library"
  elif [ -z "$path" ]; then
    echo "bundle: $library is not installed here and is left out." >&2
  fi
done
cp "$build/bin/bench_kernels.wasm" "$root/bin/"
cp -r "$build/bin/bench_gpu" "$root/bin/"
if $peers; then
  cp -r "$build/bin/bench_cpu" "$root/bin/"
else
  mkdir -p "$root/bin/bench_cpu"
  cp "$build/bin/bench_cpu/kernels.wasm" "$build"/bin/bench_cpu/*.{cl,h} "$root/bin/bench_cpu/"
fi
cp -r examples "$root/share/hpvm/"
rm -rf "$root"/share/hpvm/examples/*/out "$root"/share/hpvm/examples/__pycache__
cp LICENSE "$root/share/hpvm/"
cp client/kernel/hpvm.h deploy/hpvmd.toml deploy/hpvmd.service deploy/alerts.yml deploy/prometheus.yml deploy/dashboard.json "$root/share/hpvm/"
python3 deploy/packages/pages.py "$root/share/hpvm" docs=. examples=examples README.md=README.md CHANGELOG.md=CHANGELOG.md

if $tests; then
  mkdir -p "$root/tests"
  found=()
  for pattern in 'native_conformance_test' 'opencl_*test' 'vulkan_*test' 'gpu_*test' 'gpu_*benchmark' 'tenants_test'; do
    for file in "$build"/tests/$pattern; do
      [ ! -x "$file" ] || found+=("$file")
    done
  done
  for file in "${found[@]}"; do
    add_program "$file" tests
  done
  if [ -x "$build/bin/hpvm-gpu-random" ]; then
    add_program "$build/bin/hpvm-gpu-random" bin
    found+=("$build/bin/hpvm-gpu-random")
  fi
  [ "${#found[@]}" -eq 0 ] || add_libraries "$root/lib" "${found[@]}"
  # Programs of the graph corpus and of graphs over several devices: tests/gpu/graphs/run.py bin, tests/gpu/many.py bin
  for name_of_tests in gpu_graphs gpu_many; do
    program=$build/bin/hpvm-${name_of_tests/_/-}
    if [ -x "$program" ]; then
      add_program "$program" bin
      add_libraries "$root/lib" "$program"
      cp "$build/bin/$name_of_tests.wasm" "$root/bin/"
    fi
  done
  # Tests find the programs at their places in a build, and golden files at their places in the sources.
  ln -s ../bin "$root/tests/bin"
  mkdir -p "$root/share/hpvm/sources/tests" "$root/share/hpvm/sources/compiler"
  cp -r tests/golden "$root/share/hpvm/sources/tests/"
fi

pack() {  # FOLDER-OF-THE-CONTENT ARCHIVE
  local archive=$output/$2.tar
  if $fast; then
    archive+=.zst
    tar -C "$1" -c "$name" | zstd -q -T0 -12 -f -o "$archive"
  else
    archive+=.xz
    tar -C "$1" -c "$name" | xz -9e -T0 >"$archive"
  fi
  echo "bundle: $archive, $(($(stat -c %s "$archive") / 1048576)) MiB packed, $(du -sm "$1/$name" | cut -f1) MiB unpacked"
}

pack "$work" "$name"
spirv=$build/bin/libhpvm-spirv.so
if [ -e "$spirv" ]; then
  # Contains only files that the main archive lacks; hpvm-compiler loads the library from its own folder.
  part=$work/spirv/$name
  mkdir -p "$part/bin" "$part/lib"
  strip -o "$part/bin/libhpvm-spirv.so" "$spirv"
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$part/bin/libhpvm-spirv.so"
  add_libraries "$part/lib" "$spirv"
  pack "$work/spirv" "hpvmd-$version-spirv-linux-x86_64"
fi
