// SPDX-License-Identifier: Apache-2.0
// Correct and faulty kernels for gpu.py.
__kernel void twice(__global const int* in, __global int* out) {
  out[get_global_id(0)] = 2 * in[get_global_id(0)];
}

__kernel void scaled(__global const int* in, __global int* out, int factor) {
  out[get_global_id(0)] = factor * in[get_global_id(0)];
}

__kernel void endless(__global const int* in, __global int* out) {
  volatile __global int* count = out;
  while (in[0] != 4711) {
    *count = *count + 1;
  }
}

__kernel void astray(__global const int* in, __global int* out) {
  out[(size_t)1 << 40] = in[0];
}
