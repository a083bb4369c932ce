// SPDX-License-Identifier: Apache-2.0
// Leaves for canaries.py: some write a canary to all the memory they reach, others count the nonzero words in memory that
// their tenant has not written. tests/gpu/build.sh builds canaries.wasm from it.
#include "../../client/kernel/hpvm.h"

#define LOCAL_WORDS 3072

HPVM_KERNEL void fill(unsigned* scratch, int value) { scratch[hpvm_x()] = (unsigned)value; }

HPVM_KERNEL void last(const unsigned* scratch, unsigned* out, int words) { out[0] = scratch[words - 1]; }

// Needs eight buffers at once.
HPVM_KERNEL void gather(const unsigned* a, const unsigned* b, const unsigned* c, const unsigned* d, const unsigned* e,
                        const unsigned* f, const unsigned* g, const unsigned* h, unsigned* out, int last) {
  out[0] = a[last] ^ b[last] ^ c[last] ^ d[last] ^ e[last] ^ f[last] ^ g[last] ^ h[last];
}

HPVM_KERNEL void increment(int* data) { data[hpvm_x()] += 1; }

// Loops until an instance writes here, which none does.
HPVM_KERNEL void spin(volatile int* data) {
  while (data[hpvm_x()] != 12345) {
  }
  data[hpvm_x()] = 1;
}

// An output that is not written.
HPVM_KERNEL void leave(const unsigned* seed, unsigned* scratch) {
  if (seed[0] == 0x7fffffffu) {
    scratch[hpvm_x()] = 1;
  }
}

HPVM_KERNEL void scan(const unsigned* scratch, unsigned* counts, int words, int step) {
  unsigned count = 0;
  for (int i = hpvm_x(); i < words; i += step) {
    count += scratch[i] != 0;
  }
  counts[hpvm_x()] = count;
}

HPVM_KERNEL void fill_group(unsigned* out, int value) {
  volatile unsigned* memory = hpvm_local_alloc(sizeof(unsigned) * LOCAL_WORDS);
  const int local = hpvm_local_id(0), size = hpvm_group_size(0);
  for (int i = local; i < LOCAL_WORDS; i += size) {
    memory[i] = (unsigned)value;
  }
  hpvm_barrier();
  out[hpvm_x()] = memory[(local * 37) % LOCAL_WORDS];
}

HPVM_KERNEL void scan_group(unsigned* out) {
  volatile unsigned* memory = hpvm_local_alloc(sizeof(unsigned) * LOCAL_WORDS);
  const int local = hpvm_local_id(0), size = hpvm_group_size(0);
  unsigned count = 0;
  for (int i = local; i < LOCAL_WORDS; i += size) {
    count += memory[i] != 0;
  }
  out[hpvm_x()] = count;
}
