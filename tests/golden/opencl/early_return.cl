// early_return_wasm: find
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

__kernel void unchecked(__global const uchar* b0,
    ulong start0,
    __global uchar* b1,
    ulong start1,
    uint s2,
    uint s3,
    uint s4,
    uint first_x) {
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  uint v6 = x;
  uint v7 = (uint)((int)v6 >= (int)s2);
  if (v7 != 0u) {
    goto end0;
  }
  uint v9 = v6 << 2u;
  uint v10 = 131072u + v9;
  uint v12 = v10 - 131072u;
  *(__global u32*)(AT(__global, p1, (ulong)v12)) = 0xffffffffu;
  uint v14 = (uint)((int)s3 < (int)1u);
  if (v14 != 0u) {
    goto end0;
  }
  uint v15 = v6 * s3;
  uint v17 = v15 << 2u;
  uint v18 = 131072u + v17;
  uint v20 = v18;
  uint v21 = 0u;
  for (;;) {
    uint v23 = v21 + 8u;
    uint v24 = (uint)((int)v23 < (int)s3);
    uint v25 = v24 != 0u ? v23 : s3;
    uint v26 = v20;
    uint v27 = v21;
    for (;;) {
      uint v28;
      uint v29 = v26 - 131072u;
      uint v30 = once32(*(__global const u32*)(AT(__global const, p0, (ulong)v29)));
      uint v31 = (uint)(v30 != s4);
      if (v31 != 0u) {
        v28 = v30;
        goto end5;
      }
      uint v32 = v10 - 131072u;
      *(__global u32*)(AT(__global, p1, (ulong)v32)) = v27;
      goto end0;
     end5:;
      uint v34 = (uint)((int)v28 < (int)0u);
      if (v34 != 0u) {
        goto end7;
      }
      uint v36 = v26 + 4u;
      uint v38 = v27 + 1u;
      uint v39 = (uint)((int)v38 < (int)v25);
      if (v39 != 0u) {
        v26 = v36;
        v27 = v38;
        continue;
      }
     end7:;
      break;
    }
    uint v41 = v20 + 32u;
    uint v42 = (uint)((int)v23 < (int)s3);
    if (v42 != 0u) {
      v20 = v41;
      v21 = v23;
      continue;
    }
    break;
  }
 end0:;
}

__kernel void checked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    uint s2,
    uint s3,
    uint s4,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  const uint places0_4 = n0 >= 4ul ? (uint)(n0 - 3ul) : 0u;
  const uint places1_4 = n1 >= 4ul ? (uint)(n1 - 3ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  uint v6 = x;
  uint v7 = (uint)((int)v6 >= (int)s2);
  if (v7 != 0u) {
    goto end0;
  }
  uint v9 = v6 << 2u;
  uint v10 = 131072u + v9;
  uint v12 = v10 - 131072u;
  if (v12 >= places1_4) { record_trap(HERE, 262146u, 147u, 0u, (uint)(a1 + (ulong)v12)); return; }
  *(__global u32*)(AT(__global, p1, (ulong)v12)) = 0xffffffffu;
  uint v14 = (uint)((int)s3 < (int)1u);
  if (v14 != 0u) {
    goto end0;
  }
  uint v15 = v6 * s3;
  uint v17 = v15 << 2u;
  uint v18 = 131072u + v17;
  uint v20 = v18;
  uint v21 = 0u;
  for (;;) {
    uint v23 = v21 + 8u;
    uint v24 = (uint)((int)v23 < (int)s3);
    uint v25 = v24 != 0u ? v23 : s3;
    uint v26 = v20;
    uint v27 = v21;
    for (;;) {
      uint v28;
      uint v29 = v26 - 131072u;
      if (v29 >= places0_4) { record_trap(HERE, 262146u, 205u, 0u, (uint)(a0 + (ulong)v29)); return; }
      uint v30 = once32(*(__global const u32*)(AT(__global const, p0, (ulong)v29)));
      uint v31 = (uint)(v30 != s4);
      if (v31 != 0u) {
        v28 = v30;
        goto end5;
      }
      uint v32 = v10 - 131072u;
      if (v32 >= places1_4) { record_trap(HERE, 262146u, 219u, 0u, (uint)(a1 + (ulong)v32)); return; }
      *(__global u32*)(AT(__global, p1, (ulong)v32)) = v27;
      goto end0;
     end5:;
      uint v34 = (uint)((int)v28 < (int)0u);
      if (v34 != 0u) {
        goto end7;
      }
      uint v36 = v26 + 4u;
      uint v38 = v27 + 1u;
      uint v39 = (uint)((int)v38 < (int)v25);
      if (v39 != 0u) {
        v26 = v36;
        v27 = v38;
        continue;
      }
     end7:;
      break;
    }
    uint v41 = v20 + 32u;
    uint v42 = (uint)((int)v23 < (int)s3);
    if (v42 != 0u) {
      v20 = v41;
      v21 = v23;
      continue;
    }
    break;
  }
 end0:;
}
