// SPDX-License-Identifier: Apache-2.0
// Kernels that do not end, each in a different way, for runaways.py; runaways.wasm is built by build.sh. `go` is 0.
#include "hpvm.h"

HPVM_KERNEL void tight(volatile const int* go, int* out) {
  while (go[0] == 0) {
  }
  out[hpvm_instance_id(0)] = 1;
}

// A loop over vectors: the lanes agree.
HPVM_KERNEL void vectors(const int* go, int* out) {
  const int i = hpvm_instance_id(0);
  unsigned chain = i;
  for (long long n = 0; n < 1000000000000000LL; ++n) {
    chain = (chain ^ chain >> 15) * 1664525 + go[0];
  }
  out[i] = chain;
}

// A loop that calls the host in every iteration.
HPVM_KERNEL void host_calls(volatile const int* go, int* out) {
  while (go[0] == 0) {
    hpvm_print("round %d\n", go[0]);
  }
  out[hpvm_instance_id(0)] = 1;
}

// A loop around one slow instruction.
HPVM_KERNEL void memory_fill(volatile const int* go, int* out) {
  unsigned char* bytes = (unsigned char*)out;
  int value = 0;
  while (go[0] == 0) {
    __builtin_memset(bytes, ++value, 16 << 20);
  }
}

HPVM_KERNEL void atomics(volatile const int* go, int* out) {
  while (hpvm_atomic_add_i32(&out[0], 1) != -1 || go[0] == 0) {
  }
}

// Instance 0 waits for the others at a barrier that they do not reach.
HPVM_KERNEL void barrier(volatile const int* go, int* out) {
  if (hpvm_local_id(0) != 0) {
    while (go[0] == 0) {
    }
  }
  hpvm_barrier();
  out[hpvm_instance_id(0)] = 1;
}

__attribute__((noinline)) static int walk(volatile const int* go, int depth) {
  return depth == 0 ? go[0] : walk(go, depth - 1) + walk(go, depth - 1);
}

// 2^60 calls, 60 deep.
HPVM_KERNEL void recursion(volatile const int* go, int* out) { out[hpvm_instance_id(0)] = walk(go, 60); }

HPVM_KERNEL void add(const int* in, int* out) { out[hpvm_instance_id(0)] = in[hpvm_instance_id(0)] + 1; }
