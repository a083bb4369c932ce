// histogram_wasm: histogram
#pragma OPENCL FP_CONTRACT OFF
#ifdef __has_attribute
#if __has_attribute(may_alias)
#define ANY __attribute__((may_alias))
#endif
#endif
#ifndef ANY
#define ANY
#endif
typedef ushort ANY u16;
typedef uint ANY u32;
typedef ulong ANY u64;
typedef uint4 ANY u128;
// NVIDIA's compiler takes constants out of a 32-bit sum that wraps where the sum, extended, is a pointer's offset.
#ifdef __NV_CL_C_VERSION
#define AT(space, base, offset) ((space uchar*)((ulong)(base) + (offset)))
#else
#define AT(space, base, offset) ((base) + (offset))
#endif
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable

// The first instance that traps fills in the launch's record.
#define HERE traps, trap_index, x, y, z
void record_trap(__global uint* traps, uint index, uint x, uint y, uint z, uint code, uint source, uint function,
                 uint address) {
  volatile __global uint* record = traps + 8ul * index;
  if (atomic_cmpxchg(record, 0u, 1u) == 0u) {
    record[1] = code;
    record[2] = x;
    record[3] = y;
    record[4] = z;
    record[5] = source;
    record[6] = function;
    record[7] = address;
  }
}

uint once32(uint v) {
#if defined(__NV_CL_C_VERSION)
  uint same;
  asm("mov.b32 %0, %1;" : "=r"(same) : "r"(v));
  return same;
#elif defined(__x86_64__) || defined(__aarch64__)
  __asm__("" : "+r"(v));
  return v;
#else
  volatile uint same = v;
  return same;
#endif
}

__kernel void unchecked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global uchar* b1,
    ulong start1,
    __global uchar* b2,
    ulong start2,
    __global uchar* b3,
    ulong start3,
    uint first_x,
    uint first_y,
    uint first_z,
    uint extent_x,
    __global uint* traps,
    uint trap_index) {
  const uint places0_1 = n0 >= 1ul ? (uint)(n0 - 0ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  __global uchar* p2 = b2 + start2;
  __global uchar* p3 = b3 + start3;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  uint v5 = (uint)n0;
  ulong v7;
  uint v9 = x;
  uint v10 = (uint)(v9 >= v5);
  if (v10 != 0u) {
    v7 = 0ul;
    goto end0;
  }
  ulong v12;
  ulong v13 = 0ul;
  uint v14 = v9;
  for (;;) {
    uint v15 = 131072u + v14;
    uint v16 = v15 - 131072u;
    if (v16 >= places0_1) { record_trap(HERE, 65538u, 292u, 0u, (uint)(a0 + (ulong)v16)); return; }
    uint v17 = (uint)(once32((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v16))));
    uint v19 = v17 << 2u;
    uint v20 = 131072u + v19;
    uint v22 = v20 - 131072u;
    uint v23 = atomic_add((volatile __global uint*)(AT(__global, p1, (ulong)v22)), 1u);
    uint v24 = v15 - 131072u;
    if (v24 >= places0_1) { record_trap(HERE, 65538u, 312u, 0u, (uint)(a0 + (ulong)v24)); return; }
    uint v25 = (uint)((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v24)));
    uint v26 = 131072u - 131072u;
    uint v27 = atomic_max((volatile __global uint*)(AT(__global, p2, (ulong)v26)), v25);
    uint v28 = v15 - 131072u;
    if (v28 >= places0_1) { record_trap(HERE, 65538u, 326u, 0u, (uint)(a0 + (ulong)v28)); return; }
    ulong v29 = (ulong)((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v28)));
    ulong v30 = v13 + v29;
    uint v32 = extent_x;
    uint v33 = v32 + v14;
    uint v34 = (uint)(v33 < v5);
    if (v34 != 0u) {
      v13 = v30;
      v14 = v33;
      continue;
    }
    v12 = v30;
    break;
  }
  v7 = v12;
 end0:;
  uint v35 = 131072u - 131072u;
  ulong v36 = atom_add((volatile __global ulong*)(AT(__global, p3, (ulong)v35)), v7);
}

__kernel void checked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    __global uchar* b2,
    ulong n2,
    ulong start2,
    uint a2,
    __global uchar* b3,
    ulong n3,
    ulong start3,
    uint a3,
    uint first_x,
    uint first_y,
    uint first_z,
    uint extent_x,
    __global uint* traps,
    uint trap_index) {
  const uint places0_1 = n0 >= 1ul ? (uint)(n0 - 0ul) : 0u;
  const uint places1_4 = n1 >= 4ul ? (uint)(n1 - 3ul) : 0u;
  const uint places2_4 = n2 >= 4ul ? (uint)(n2 - 3ul) : 0u;
  const uint places3_8 = n3 >= 8ul ? (uint)(n3 - 7ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  __global uchar* p2 = b2 + start2;
  __global uchar* p3 = b3 + start3;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  uint v5 = (uint)n0;
  ulong v7;
  uint v9 = x;
  uint v10 = (uint)(v9 >= v5);
  if (v10 != 0u) {
    v7 = 0ul;
    goto end0;
  }
  ulong v12;
  ulong v13 = 0ul;
  uint v14 = v9;
  for (;;) {
    uint v15 = 131072u + v14;
    uint v16 = v15 - 131072u;
    if (v16 >= places0_1) { record_trap(HERE, 65538u, 292u, 0u, (uint)(a0 + (ulong)v16)); return; }
    uint v17 = (uint)(once32((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v16))));
    uint v19 = v17 << 2u;
    uint v20 = 131072u + v19;
    uint v22 = v20 - 131072u;
    if (v22 >= places1_4) { record_trap(HERE, 262146u, 301u, 0u, (uint)(a1 + (ulong)v22)); return; }
    uint v23 = atomic_add((volatile __global uint*)(AT(__global, p1, (ulong)v22)), 1u);
    uint v24 = v15 - 131072u;
    if (v24 >= places0_1) { record_trap(HERE, 65538u, 312u, 0u, (uint)(a0 + (ulong)v24)); return; }
    uint v25 = (uint)((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v24)));
    uint v26 = 131072u - 131072u;
    if (v26 >= places2_4) { record_trap(HERE, 262146u, 315u, 0u, (uint)(a2 + (ulong)v26)); return; }
    uint v27 = atomic_max((volatile __global uint*)(AT(__global, p2, (ulong)v26)), v25);
    uint v28 = v15 - 131072u;
    if (v28 >= places0_1) { record_trap(HERE, 65538u, 326u, 0u, (uint)(a0 + (ulong)v28)); return; }
    ulong v29 = (ulong)((uint)*(__global const uchar*)(AT(__global const, p0, (ulong)v28)));
    ulong v30 = v13 + v29;
    uint v32 = extent_x;
    uint v33 = v32 + v14;
    uint v34 = (uint)(v33 < v5);
    if (v34 != 0u) {
      v13 = v30;
      v14 = v33;
      continue;
    }
    v12 = v30;
    break;
  }
  v7 = v12;
 end0:;
  uint v35 = 131072u - 131072u;
  if (v35 >= places3_8) { record_trap(HERE, 524290u, 356u, 0u, (uint)(a3 + (ulong)v35)); return; }
  ulong v36 = atom_add((volatile __global ulong*)(AT(__global, p3, (ulong)v35)), v7);
}
