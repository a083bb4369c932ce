// SPDX-License-Identifier: Apache-2.0
// hpvm-probe-code FILE: writes the artifacts of the wrapped-address probe, as each GPU back end makes them, as C++
// arrays. Runs at build time only, and never handles a tenant's data.
#include <stdio.h>

#include <optional>

#include "compiler/api/artifact.h"
#include "compiler/back/back_ends.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::gpu {
namespace {

// Instance i sums two pairs of neighbouring words of x at 48 i + 80, which 32-bit sums reach by wrapping: the stand-in
// base is added and subtracted in the first pair, the kernel's own constants are in the second. Both sums are 12 i +
// 21 where word w of x is w, and are stored at 16 i through such a pair as well.
constexpr char kWrap[] = R"(module "wrap"
param buffer in "x"
param buffer inout "out"
param i32 "extra"
entry f0
func f0 "wrap" (%x: i32, %out: i32, %extra: i32) -> () {
%zero: i32 = const.i32 0
%c8: i32 = const.i32 8
%c16: i32 = const.i32 16
%c48: i32 = const.i32 48
%c80: i32 = const.i32 80
%c88: i32 = const.i32 88
%c680: i32 = const.i32 680
%c688: i32 = const.i32 688
%i: i32 = instance_id.i32 %zero
%e: i32 = mul.i32 %extra, %c16
%row: i32 = mul.i32 %i, %c48
%xr: i32 = add.i32 %x, %row
%t: i32 = add.i32 %xr, %e
%a0: i32 = add.i32 %t, %c80
%a1: i32 = add.i32 %t, %c88
%v0: i64 = load.i64 flat %a0
%v1: i64 = load.i64 flat %a1
%v: i64 = add.i64 %v0, %v1
%i16: i32 = add.i32 %i, %c16
%far: i32 = mul.i32 %i16, %c48
%xf: i32 = add.i32 %x, %far
%u: i32 = add.i32 %xf, %e
%b0: i32 = sub.i32 %u, %c680
%b1: i32 = sub.i32 %u, %c688
%w0: i64 = load.i64 flat %b0
%w1: i64 = load.i64 flat %b1
%w: i64 = add.i64 %w0, %w1
%o16: i32 = mul.i32 %i, %c16
%or: i32 = add.i32 %out, %o16
%o: i32 = add.i32 %or, %e
%o8: i32 = add.i32 %o, %c8
store.i64 flat %o, %v
store.i64 flat %o8, %w
return ()
}
)";

// Returns the features that every 64-bit device has. Devices differ in features of the text and the words that this
// kernel does not use.
GpuTarget Common() {
  GpuTarget target;
  target.has_int64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.group_size_max = 128;
  target.group_extent_max = {128, 128, 64};
  target.group_count_max = {65535, 65535, 65535};
  target.local_bytes_max = 16 << 10;
  target.buffer_bytes_max = 128 << 20;
  target.buffers_max = 4;
  target.push_bytes_max = 128;
  return target;
}

std::optional<Artifact> Emit(const BackEnd& back) {
  StatusOr<ir::Module> module = ir::ParseModule(kWrap);
  if (const Status status = module.ok() ? pass::RunGpuPipeline(*module, {.verify_each = true}) : module.status();
      !status.ok()) {
    fprintf(stderr, "hpvm-probe-code: %s\n", Message(status).c_str());
    return std::nullopt;
  }
  GpuTarget target = Common();
  target.api_version = back.probe_version;
  GpuOptions options;
  options.chooses_tiles = false;
  Diagnostics diagnostics;
  std::optional<Artifact> artifact = back.emit(*module, target, options, diagnostics);
  if (!artifact.has_value()) {
    fprintf(stderr, "hpvm-probe-code: %s\n", ToString(diagnostics).c_str());
  }
  return artifact;
}

void Write(FILE* file, const char* name, const Artifact& artifact) {
  fprintf(file, "constexpr unsigned char %s[] = {", name);
  size_t column = 0;
  for (const uint8_t byte : Serialize(artifact, ArtifactKey{})) {
    fprintf(file, "%s%u,", column++ % 24 == 0 ? "\n" : "", byte);
  }
  fputs("};\n", file);
}

int Run(const char* path) {
  FILE* const file = fopen(path, "w");
  bool has_all = file != nullptr;
  for (auto back = BackEnds().begin(); has_all && back != BackEnds().end(); ++back) {
    const std::optional<Artifact> artifact = Emit(**back);
    has_all = artifact.has_value();
    if (has_all) {
      Write(file, (*back)->probe_name, *artifact);
    }
  }
  return has_all && fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hpvm::gpu

int main(int argc, char** argv) {
  if (argc != 2) {
    fputs("usage: hpvm-probe-code FILE\n", stderr);
    return 2;
  }
  return hpvm::gpu::Run(argv[1]);
}
