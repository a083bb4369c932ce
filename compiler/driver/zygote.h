// SPDX-License-Identifier: Apache-2.0
// The zygote: the process `hpvm-compiler`, which keeps LLVM and wabt initialized and forks one child per compile.
//
// Command line:
//   hpvm-compiler --socket FD [--cache FOLDER] [--cache-bytes N] [--memory-bytes N] [--seconds N]
//   [--wall-seconds N] [--children N] [--opencl] [--needs-landlock] [--no-sandbox]
// FD is an inherited Unix stream socket. FOLDER holds compiled artifacts between runs; without it nothing is kept. It
// must belong to one tenant: a file there is trusted if its tag fits the key. --opencl: there are OpenCL devices, so
// the zygote can read OpenCL C, and translate SPIR-V kernels for drivers that take PTX or SPIR bitcode; it loads
// libhpvm-opencl.so, libhpvm-spirv.so and the libraries that they need.
//
// Protocol: builder/message.h, with messages of proto/internal/builder.proto as payloads (compile_message.h).
//   request   CompileRequest, and one memfd of sealed size with the module's bytes
//   answer    CompileAnswer, the tagged artifact as the frame's body
//   note      CompileNote, measurements of a delivered artifact. It is kept beside the artifact, and comes with its
//             next delivery.
// A child writes one frame into its pipe: a CompileAnswer, the untagged artifact as its body.
//
// Caps: a child gets RLIMIT_AS and RLIMIT_DATA of `memory_bytes` and RLIMIT_CPU of `seconds`. It is killed at the
// earlier of `wall_seconds` by the clock and the request's deadline, and when its request is cancelled. A child that
// dies gives a diagnostic that names the cap and its value.
//
// Resources that the processes need, for the author of a sandbox around them:
//   zygote, until warm     libLLVM-22, libcrypto, libprotobuf-lite, libseccomp and the libraries that they link (read,
//                          execute); /proc/self (read) for the CPU's features
//   zygote, once warm      FOLDER (read, write, create, rename, remove); the inherited socket; stderr. Nothing else is
//                          opened.
//     system calls         clone with CLONE_PIDFD and no other flag, wait4, pidfd_send_signal, pipe2, poll, recvmsg,
//                          sendmsg, read, write, pread64, openat/renameat/unlinkat/utimensat below FOLDER, getdents64,
//                          fstat, memory (mmap without PROT_EXEC, munmap, brk, madvise, mprotect), futex,
//                          clock_gettime, prlimit64 of itself, prctl (seccomp, death with its parent), exit
//   children               one pipe to write, one memfd to read. System calls: memory, read, pread64, write, futex,
//                          clock_gettime, exit.
// The zygote sandboxes itself and its children (sandbox/call_rules.cc); an outer sandbox only has to allow the above.
#ifndef HPVMD_COMPILER_DRIVER_ZYGOTE_H_
#define HPVMD_COMPILER_DRIVER_ZYGOTE_H_

#include <cstdint>
#include <string>

#include "base/limits.h"
#include "compiler/api/service.h"

namespace hpvm::compile {

struct ZygoteOptions {
  int socket = -1;
  std::string cache_folder;
  uint64_t cache_bytes_max = 512 * limits::kMiB;
  uint64_t memory_bytes_max = limits::kCompileMemoryBytesMax;
  uint32_t seconds_max = limits::kCompileSecondsMax;  // Processor time.
  uint32_t wall_seconds_max = kCompileWallSecondsMax;
  uint32_t children_max = 0;  // 0: one per core.
  bool is_sandboxed = true;   // False only for debuggers.
  bool has_opencl = false;    // --opencl.
  bool needs_landlock = false;
};

// Serves until the client disconnects; returns the process's exit status. Single-threaded; call from main only,
// because it forks.
int RunZygote(const ZygoteOptions& options);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_ZYGOTE_H_
