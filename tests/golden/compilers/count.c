// SPDX-License-Identifier: Apache-2.0
// With shared memory, wasm-ld makes data passive and adds a start function that copies it, with wait and notify.
#include "client/kernel/hpvm.h"

static int table[] = {5, 6, 7, 8};
static volatile int where[1000];

HPVM_KERNEL void count(const int* x, int* out, int count) {
  const int i = hpvm_instance_id(0);
  if (i < count) {
    where[i] = table[x[i] & 3];
    __atomic_fetch_add(&out[i & 3], where[i], __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
}
