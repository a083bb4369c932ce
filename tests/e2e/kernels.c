// SPDX-License-Identifier: Apache-2.0
// Correct and faulty kernels for tests/e2e/e2e.py. Rebuilt by build.sh; the .wasm is committed.
#include "hpvm.h"

HPVM_KERNEL void add(const int* in, int* out, int amount) {
  int i = hpvm_instance_id(0);
  out[i] = in[i] + amount;
}

HPVM_KERNEL void add_in_place(int* data, int amount) { data[hpvm_instance_id(0)] += amount; }

// Traps in instance 3 when that element is 0.
HPVM_KERNEL void divide(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  out[i] = 100 / in[i];
}

HPVM_KERNEL void reach(int* out, int distance) { out[hpvm_instance_id(0) + distance] = 1; }

HPVM_KERNEL void spin(volatile int* out) {
  while (out[0] == 0) {
  }
}

// Runs for about a millisecond for each of `rounds`: each step needs the previous one, and steps cannot be combined as
// those of a linear recurrence can. Then does the same as add.
HPVM_KERNEL void busy(const int* in, int* out, int amount, int rounds) {
  const int i = hpvm_instance_id(0);
  unsigned chain = in[i];
  for (long long n = 0; n < rounds * 400000LL; ++n) {
    chain = (chain ^ chain >> 15) * 1664525 + 1013904223;
  }
  out[i] = in[i] + amount + (chain == 1 ? 1 : 0);
}

// Instances whose value is not 0 never end; the others write their number.
HPVM_KERNEL void spin_some(volatile const int* in, int* out) {
  const int i = hpvm_instance_id(0);
  int sum = 0;
  while (in[i] != 0) {
    sum += in[i];
  }
  out[i] = i + sum;
}

static int deep(volatile int* out, int n) { return n == 0 ? out[0] : deep(out, n + 1) + out[n & 3]; }

HPVM_KERNEL void recurse(volatile int* out) { out[0] = deep(out, 1); }

HPVM_KERNEL void stop(int* out) {
  if (hpvm_instance_id(0) == 2) {
    __builtin_trap();
  }
  out[hpvm_instance_id(0)] = 1;
}

// Sums a group's elements with a barrier and group memory; one result for each group.
HPVM_KERNEL void group_sum(const int* in, int* out) {
  int size = hpvm_group_size(0), local = hpvm_local_id(0);
  int* scratch = hpvm_local_alloc(sizeof(int) * size);
  scratch[local] = in[hpvm_instance_id(0)];
  hpvm_barrier();
  for (int step = size / 2; step > 0; step /= 2) {
    if (local < step) {
      scratch[local] += scratch[local + step];
    }
    hpvm_barrier();
  }
  if (local == 0) {
    out[hpvm_group_id(0)] = scratch[0];
  }
}
