// SPDX-License-Identifier: Apache-2.0
// Leaves for tenants.py; tests/gpu/build.sh builds tenants.wasm from it.
#include "../../client/kernel/hpvm.h"

HPVM_KERNEL void increment(int* data) { data[hpvm_x()] += 1; }

// Loops until an instance writes here, which none does.
HPVM_KERNEL void spin(volatile int* data) {
  while (data[hpvm_x()] != 12345) {
  }
  data[hpvm_x()] = 1;
}
