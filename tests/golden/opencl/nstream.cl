// kernels_wasm: nstream
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
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

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

__kernel void unchecked(__global uchar* b0,
    ulong start0,
    __global const uchar* b1,
    ulong start1,
    __global const uchar* b2,
    ulong start2,
    double s3,
    uint first_x) {
  __global uchar* p0 = b0 + start0;
  __global const uchar* p1 = b1 + start1;
  __global const uchar* p2 = b2 + start2;
  const uint x = first_x + (uint)get_global_id(0);
  uint v5 = x;
  uint v7 = v5 << 3u;
  uint v8 = 131072u + v7;
  uint v9 = v8 - 131072u;
  double v10 = as_double(*(__global u64*)(AT(__global, p0, (ulong)v9)));
  uint v11 = 131072u + v7;
  uint v12 = v11 - 131072u;
  double v13 = as_double(*(__global const u64*)(AT(__global const, p1, (ulong)v12)));
  uint v14 = 131072u + v7;
  uint v15 = v14 - 131072u;
  double v16 = as_double(*(__global const u64*)(AT(__global const, p2, (ulong)v15)));
  double v17 = s3 * v16;
  double v18 = v13 + v17;
  double v19 = v10 + v18;
  uint v20 = v8 - 131072u;
  *(__global u64*)(AT(__global, p0, (ulong)v20)) = as_ulong(v19);
}

__kernel void checked(__global uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global const uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    __global const uchar* b2,
    ulong n2,
    ulong start2,
    uint a2,
    double s3,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  const uint places0_8 = n0 >= 8ul ? (uint)(n0 - 7ul) : 0u;
  const uint places1_8 = n1 >= 8ul ? (uint)(n1 - 7ul) : 0u;
  const uint places2_8 = n2 >= 8ul ? (uint)(n2 - 7ul) : 0u;
  __global uchar* p0 = b0 + start0;
  __global const uchar* p1 = b1 + start1;
  __global const uchar* p2 = b2 + start2;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  uint v5 = x;
  uint v7 = v5 << 3u;
  uint v8 = 131072u + v7;
  uint v9 = v8 - 131072u;
  if (v9 >= min(min(places0_8, places1_8), places2_8)) {
    if (v9 >= places0_8) { record_trap(HERE, 524290u, 607u, 0u, (uint)(a0 + (ulong)v9 + 0ul)); return; }
    if (v9 >= places1_8) { record_trap(HERE, 524290u, 615u, 0u, (uint)(a1 + (ulong)v9 + 0ul)); return; }
    if (v9 >= places2_8) { record_trap(HERE, 524290u, 625u, 0u, (uint)(a2 + (ulong)v9 + 0ul)); return; }
  }
  double v10 = as_double(*(__global u64*)(AT(__global, p0, (ulong)v9)));
  uint v11 = 131072u + v7;
  uint v12 = v11 - 131072u;
  double v13 = as_double(*(__global const u64*)(AT(__global const, p1, (ulong)v12)));
  uint v14 = 131072u + v7;
  uint v15 = v14 - 131072u;
  double v16 = as_double(*(__global const u64*)(AT(__global const, p2, (ulong)v15)));
  double v17 = s3 * v16;
  double v18 = v13 + v17;
  double v19 = v10 + v18;
  uint v20 = v8 - 131072u;
  if (v20 >= places0_8) { record_trap(HERE, 524290u, 631u, 0u, (uint)(a0 + (ulong)v20)); return; }
  *(__global u64*)(AT(__global, p0, (ulong)v20)) = as_ulong(v19);
}
