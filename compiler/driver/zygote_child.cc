// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/zygote_child.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"
#include "compiler/api/compile_message.h"
#include "compiler/driver/compile.h"
#include "compiler/front/wasm/lower/math.h"
#include "compiler/ir/text/text.h"

namespace hpvm::compile {
namespace {

constexpr int kFirstFd = 3;

// Covers common features of a compile: a loop, both float widths, a branch, a call, module memory.
constexpr char kRehearsal[] = R"(module "rehearsal"
memory 65536 65536
global mut i32 65536
param buffer in "x"
param buffer inout "y"
param i32 "n"
entry f0
func f0 "main" (%x: i32, %y: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %f: f32 = const.f32 0
  %i: i32 = instance_id.i32 %zero
  %s: f32 = loop b0 (%k: i32 = %zero, %a: f32 = %f) {
    %o: i32 = shl.i32 %k, %two
    %p: i32 = add.i32 %x, %o
    %v: f32 = load.f32 flat %p
    %w: f32 = fmul.f32 %v, %v
    %b: f32 = fadd.f32 %a, %w
    %j: i32 = add.i32 %k, %one
    %c: i32 = lt_u.i32 %j, %n
    if b1 %c {
      continue b0 (%j, %b)
    } else {
      br b1 ()
    }
    br b0 (%b)
  }
  %g: i32 = global_get.i32 g0
  %h: f32 = call f1 (%s, %zero)
  %oi: i32 = shl.i32 %i, %two
  %q: i32 = add.i32 %y, %oi
  store.f32 flat %q, %h
  return ()
}
func f1 "scale" (%s: f32, %a: i32) -> (f32) {
  %d: f64 = promote.f32 %s
  %r: f64 = fsqrt.f64 %d
  store.f64 flat %a + 16, %r
  %t: i32 = trunc_sat_s.f64 %r
  %u: i32 = rem_s.i32 %t, %t
  %v: f32 = convert_s.i32 %u
  return (%v)
}
)";

[[noreturn]] void OutOfMemory() { _exit(kOutOfMemoryStatus); }

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "hpvm-compiler: a compile cannot run: %s\n", Message(status).c_str());
  _exit(1);
}

// Keeps only the two descriptors, as kFirstFd and the next, and stderr.
Status KeepOnly(int* module_fd, int* result_fd) {
  // Moves both above all open descriptors, so that neither dup2 overwrites the other.
  int result = fcntl(*result_fd, F_DUPFD, 64);
  int module = fcntl(*module_fd, F_DUPFD, 64);
  if (result < 0 || module < 0 || dup2(module, kFirstFd) < 0 || dup2(result, kFirstFd + 1) < 0) {
    return FromErrno(errno, "Keeping descriptors");
  }
  if (syscall(SYS_close_range, kFirstFd + 2, ~0u, 0) != 0) {
    return FromErrno(errno, "Closing descriptors");
  }
  close(0);
  close(1);
  *module_fd = kFirstFd;
  *result_fd = kFirstFd + 1;
  return absl::OkStatus();
}

bool WriteFrame(int pipe, std::string_view head, std::span<const uint8_t> body) {
  const FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()), 0};
  return WriteAll(pipe, {reinterpret_cast<const uint8_t*>(&header), sizeof(header)}) && WriteAll(pipe, BytesOf(head)) &&
         WriteAll(pipe, body);
}

CompileResult Compile(const ChildTask& task, int module_fd) {
  std::vector<uint8_t> module(task.module_bytes);
  CompileResult result;
  Status read = ReadAt(module_fd, 0, module);
  // The client can still write the memfd, so the bytes that were read are checked.
  if (read.ok() && HashOf(module) != task.request.module_hash) {
    read = InvalidArgument("The module's bytes do not have the hash that the request names (" +
                           ToHex(task.request.module_hash) + ").");
  }
  if (!read.ok()) {
    result.diagnostics.push_back({Severity::kError, "module \"" + task.request.module_name + "\"", {}, Message(read)});
    return result;
  }
  return CompileModule(task.request, module, task.target);
}

}  // namespace

void RunChild(const ChildTask& task) {
  int module_fd = task.module_fd;
  int result_fd = task.result_fd;
  Status ready = sandbox::LimitChild(task.limits, task.parent);
  if (ready.ok()) {
    ready = KeepOnly(&module_fd, &result_fd);
  }
  if (ready.ok() && task.filter != nullptr) {
    ready = task.filter->Apply();
  }
  if (!ready.ok()) {
    Fail(ready);
  }
  cpu::SetOutOfMemoryHandler(OutOfMemory);
  CompileResult result = Compile(task, module_fd);
  internal::CompileAnswer answer;
  answer.set_has_artifact(result.artifact.has_value());
  SetDiagnostics(result.diagnostics, &answer);
  std::vector<uint8_t> artifact;
  if (result.artifact.has_value()) {
    artifact = Serialize(*result.artifact, ArtifactKey{});
  }
  // Skips destructors: the process ends here, and LLVM's take time.
  _exit(WriteFrame(result_fd, answer.SerializeAsString(), artifact) ? 0 : 1);
}

Status WarmUp(const cpu::CpuTarget& target) {
  cpu::InitializeLlvm();
  wasm::PrepareMath();
  HPVMD_ASSIGN_OR_RETURN(ir::Module module, ir::ParseModule(kRehearsal));
  HPVMD_RETURN_IF_ERROR(While(cpu::EmitCpuImage(module, target).status(), "warming up"));
  // Compiles an empty module, which is enough to build wabt's tables.
  CompileRequest empty;
  const uint8_t kWasmHeader[] = {0, 'a', 's', 'm', 1, 0, 0, 0};
  PrepareModule(empty, kWasmHeader);
  return absl::OkStatus();
}

}  // namespace hpvm::compile
