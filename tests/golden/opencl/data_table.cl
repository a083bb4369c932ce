// golden: kernel
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

uint load32_global(__global const uchar* p) {
  if (((size_t)p & 3) == 0) return *(__global const u32*)p;
  return (uint)p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24;
}

ulong load64_global(__global const uchar* p) {
  if (((size_t)p & 7) == 0) return *(__global const u64*)p;
  return (ulong)load32_global(p) | (ulong)load32_global(p + 4) << 32;
}

void store32_global(__global uchar* p, uint v) {
  if (((size_t)p & 3) == 0) {
    *(__global u32*)p = v;
    return;
  }
  p[0] = (uchar)v;
  p[1] = (uchar)(v >> 8);
  p[2] = (uchar)(v >> 16);
  p[3] = (uchar)(v >> 24);
}

void store64_global(__global uchar* p, ulong v) {
  if (((size_t)p & 7) == 0) {
    *(__global u64*)p = v;
    return;
  }
  store32_global(p, (uint)v);
  store32_global(p + 4, (uint)(v >> 32));
}

// This struct holds the addresses of an instance's memory.
typedef struct {
  int nothing;
} Ranges;

int own_holds(ulong at, ulong bytes, int is_store) {
  if (bytes > 65536ul || at > 65536ul - bytes) return 0;
  if (!is_store || bytes == 0ul) return 1;
  return 0;
}
uint own_byte(const Ranges* r, ulong at) {
  return 0u;
}
void own_set(const Ranges* r, ulong at, uint value) {
}
ulong own_load(const Ranges* r, ulong at, uint bytes) {
  ulong value = 0ul;
  for (uint i = 0u; i < bytes; ++i) value |= (ulong)own_byte(r, at + i) << (8u * i);
  return value;
}
void own_store(const Ranges* r, ulong at, uint bytes, ulong value) {
  for (uint i = 0u; i < bytes; ++i) own_set(r, at + i, (uint)(value >> (8u * i)) & 0xffu);
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

__kernel void unchecked(__global uchar* b0,
    ulong start0,
    uint a0,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  __global uchar* p0 = b0 + start0;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  Ranges ranges;
  if (!own_holds((ulong)a0, 4ul, 0)) { record_trap(HERE, 262146u, 0u, 0u, (uint)(ulong)a0); return; }
  uint v1 = (uint)own_load(&ranges, (ulong)a0, 4u);
  uint v2 = a0 - a0;
  *(__global u32*)(AT(__global, p0, (ulong)v2)) = v1;
}

__kernel void checked(__global uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  const uint places0_4 = n0 >= 4ul ? (uint)(n0 - 3ul) : 0u;
  __global uchar* p0 = b0 + start0;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  Ranges ranges;
  if (!own_holds((ulong)a0, 4ul, 0)) { record_trap(HERE, 262146u, 0u, 0u, (uint)(ulong)a0); return; }
  uint v1 = (uint)own_load(&ranges, (ulong)a0, 4u);
  uint v2 = a0 - a0;
  if (v2 >= places0_4) { record_trap(HERE, 262146u, 0u, 0u, (uint)(a0 + (ulong)v2)); return; }
  *(__global u32*)(AT(__global, p0, (ulong)v2)) = v1;
}
