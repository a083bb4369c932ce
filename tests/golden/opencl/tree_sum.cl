// kernels_wasm: tree_sum
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

#ifdef GROUP_X
#define GROUP __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z)))
#else
#define GROUP
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

__kernel GROUP void unchecked(__global const uchar* b0,
    ulong start0,
    __global uchar* b1,
    ulong start1,
    uint first_x,
    uint group_x,
    uint group_base) {
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  __local ulong group_memory[128] __attribute__((aligned(16)));
  {
    const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));
    const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)));
    for (uint i = at; i < 128u; i += size) group_memory[i] = 0ul;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint v3 = group_base + 0u;
  uint v5 = x / group_x;
  uint v7 = (uint)get_local_id(0);
  uint v9 = v7 << 2u;
  uint v10 = v3 + v9;
  uint v12 = v5 << 11u;
  uint v13 = 131072u + v12;
  uint v14 = v13 + v9;
  uint v15 = v14 - 131072u;
  float v16 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v15)));
  float v17 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v15) + 1024ul));
  float v18 = v16 + v17;
  const ulong at_0 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_0) = as_uint(v18);
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v20 = (uint)((int)v7 > (int)127u);
  if (v20 != 0u) {
    goto end0;
  }
  uint v22 = v10 + 512u;
  const ulong at_1 = (ulong)(v22 - group_base) + 0ul;
  float v23 = as_float(*(__local u32*)((__local uchar*)group_memory + at_1));
  const ulong at_2 = (ulong)(v10 - group_base) + 0ul;
  float v24 = as_float(*(__local u32*)((__local uchar*)group_memory + at_2));
  float v25 = v23 + v24;
  const ulong at_3 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_3) = as_uint(v25);
 end0:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v27 = (uint)((int)v7 > (int)63u);
  if (v27 != 0u) {
    goto end2;
  }
  uint v29 = v10 + 256u;
  const ulong at_4 = (ulong)(v29 - group_base) + 0ul;
  float v30 = as_float(*(__local u32*)((__local uchar*)group_memory + at_4));
  const ulong at_5 = (ulong)(v10 - group_base) + 0ul;
  float v31 = as_float(*(__local u32*)((__local uchar*)group_memory + at_5));
  float v32 = v30 + v31;
  const ulong at_6 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_6) = as_uint(v32);
 end2:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v34 = (uint)((int)v7 > (int)31u);
  if (v34 != 0u) {
    goto end4;
  }
  uint v36 = v10 + 128u;
  const ulong at_7 = (ulong)(v36 - group_base) + 0ul;
  float v37 = as_float(*(__local u32*)((__local uchar*)group_memory + at_7));
  const ulong at_8 = (ulong)(v10 - group_base) + 0ul;
  float v38 = as_float(*(__local u32*)((__local uchar*)group_memory + at_8));
  float v39 = v37 + v38;
  const ulong at_9 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_9) = as_uint(v39);
 end4:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v41 = (uint)((int)v7 > (int)15u);
  if (v41 != 0u) {
    goto end6;
  }
  uint v43 = v10 + 64u;
  const ulong at_10 = (ulong)(v43 - group_base) + 0ul;
  float v44 = as_float(*(__local u32*)((__local uchar*)group_memory + at_10));
  const ulong at_11 = (ulong)(v10 - group_base) + 0ul;
  float v45 = as_float(*(__local u32*)((__local uchar*)group_memory + at_11));
  float v46 = v44 + v45;
  const ulong at_12 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_12) = as_uint(v46);
 end6:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v48 = (uint)((int)v7 > (int)7u);
  if (v48 != 0u) {
    goto end8;
  }
  uint v50 = v10 + 32u;
  const ulong at_13 = (ulong)(v50 - group_base) + 0ul;
  float v51 = as_float(*(__local u32*)((__local uchar*)group_memory + at_13));
  const ulong at_14 = (ulong)(v10 - group_base) + 0ul;
  float v52 = as_float(*(__local u32*)((__local uchar*)group_memory + at_14));
  float v53 = v51 + v52;
  const ulong at_15 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_15) = as_uint(v53);
 end8:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v55 = (uint)((int)v7 > (int)3u);
  if (v55 != 0u) {
    goto end10;
  }
  uint v57 = v10 + 16u;
  const ulong at_16 = (ulong)(v57 - group_base) + 0ul;
  float v58 = as_float(*(__local u32*)((__local uchar*)group_memory + at_16));
  const ulong at_17 = (ulong)(v10 - group_base) + 0ul;
  float v59 = as_float(*(__local u32*)((__local uchar*)group_memory + at_17));
  float v60 = v58 + v59;
  const ulong at_18 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_18) = as_uint(v60);
 end10:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v62 = (uint)((int)v7 > (int)1u);
  if (v62 != 0u) {
    goto end12;
  }
  uint v64 = v10 + 8u;
  const ulong at_19 = (ulong)(v64 - group_base) + 0ul;
  float v65 = as_float(*(__local u32*)((__local uchar*)group_memory + at_19));
  const ulong at_20 = (ulong)(v10 - group_base) + 0ul;
  float v66 = as_float(*(__local u32*)((__local uchar*)group_memory + at_20));
  float v67 = v65 + v66;
  const ulong at_21 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_21) = as_uint(v67);
 end12:;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint v69 = (uint)((int)v7 > (int)0u);
  if (v69 != 0u) {
    goto end14;
  }
  uint v71 = v10 + 4u;
  const ulong at_22 = (ulong)(v71 - group_base) + 0ul;
  float v72 = as_float(*(__local u32*)((__local uchar*)group_memory + at_22));
  const ulong at_23 = (ulong)(v10 - group_base) + 0ul;
  float v73 = as_float(*(__local u32*)((__local uchar*)group_memory + at_23));
  float v74 = v72 + v73;
  const ulong at_24 = (ulong)(v10 - group_base) + 0ul;
  *(__local u32*)((__local uchar*)group_memory + at_24) = as_uint(v74);
 end14:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (v7 != 0u) {
    goto end16;
  }
  uint v76 = v5 << 2u;
  uint v77 = 131072u + v76;
  const ulong at_25 = (ulong)(v3 - group_base) + 0ul;
  float v78 = as_float(*(__local u32*)((__local uchar*)group_memory + at_25));
  uint v79 = v77 - 131072u;
  *(__global u32*)(AT(__global, p1, (ulong)v79)) = as_uint(v78);
 end16:;
}

__kernel GROUP void checked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    uint first_x,
    uint first_y,
    uint first_z,
    uint group_x,
    __global uint* traps,
    uint trap_index,
    uint group_base) {
  const uint places0_4 = n0 >= 4ul ? (uint)(n0 - 3ul) : 0u;
  const uint places0_1028 = n0 >= 1028ul ? (uint)(n0 - 1027ul) : 0u;
  const uint places1_4 = n1 >= 4ul ? (uint)(n1 - 3ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  __local ulong group_memory[128] __attribute__((aligned(16)));
  __local uint stopped[2];  // stopped[meeting] is 1 when an instance has trapped before that barrier; the entries alternate.
  uint meeting = 0u;
  {
    const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));
    const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)));
    for (uint i = at; i < 128u; i += size) group_memory[i] = 0ul;
    for (uint i = at; i < 2u; i += size) stopped[i] = 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint v3 = group_base + 0u;
  uint v5 = x / group_x;
  uint v7 = (uint)get_local_id(0);
  uint v9 = v7 << 2u;
  uint v10 = v3 + v9;
  uint v12 = v5 << 11u;
  uint v13 = 131072u + v12;
  uint v14 = v13 + v9;
  uint v15 = v14 - 131072u;
  if (v15 >= places0_4) { record_trap(HERE, 262146u, 7043u, 0u, (uint)(a0 + (ulong)v15)); stopped[meeting] = 1u; goto meet18; }
  float v16 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v15)));
  if (v15 >= places0_1028) { record_trap(HERE, 262146u, 7052u, 0u, (uint)(a0 + ((ulong)v15 + 1024ul))); stopped[meeting] = 1u; goto meet18; }
  float v17 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v15) + 1024ul));
  float v18 = v16 + v17;
  const ulong at_0 = (ulong)(v10 - group_base) + 0ul;
  if (at_0 > 1020ul) { record_trap(HERE, 262146u, 7056u, 0u, (uint)(group_base + at_0)); stopped[meeting] = 1u; goto meet18; }
  *(__local u32*)((__local uchar*)group_memory + at_0) = as_uint(v18);
 meet18:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v20 = (uint)((int)v7 > (int)127u);
  if (v20 != 0u) {
    goto end0;
  }
  uint v22 = v10 + 512u;
  const ulong at_1 = (ulong)(v22 - group_base) + 0ul;
  if (at_1 > 1020ul) { record_trap(HERE, 262146u, 7083u, 0u, (uint)(group_base + at_1)); stopped[meeting] = 1u; goto meet32; }
  float v23 = as_float(*(__local u32*)((__local uchar*)group_memory + at_1));
  const ulong at_2 = (ulong)(v10 - group_base) + 0ul;
  if (at_2 > 1020ul) { record_trap(HERE, 262146u, 7088u, 0u, (uint)(group_base + at_2)); stopped[meeting] = 1u; goto meet32; }
  float v24 = as_float(*(__local u32*)((__local uchar*)group_memory + at_2));
  float v25 = v23 + v24;
  const ulong at_3 = (ulong)(v10 - group_base) + 0ul;
  if (at_3 > 1020ul) { record_trap(HERE, 262146u, 7092u, 0u, (uint)(group_base + at_3)); stopped[meeting] = 1u; goto meet32; }
  *(__local u32*)((__local uchar*)group_memory + at_3) = as_uint(v25);
 end0:;
 meet32:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v27 = (uint)((int)v7 > (int)63u);
  if (v27 != 0u) {
    goto end2;
  }
  uint v29 = v10 + 256u;
  const ulong at_4 = (ulong)(v29 - group_base) + 0ul;
  if (at_4 > 1020ul) { record_trap(HERE, 262146u, 7119u, 0u, (uint)(group_base + at_4)); stopped[meeting] = 1u; goto meet46; }
  float v30 = as_float(*(__local u32*)((__local uchar*)group_memory + at_4));
  const ulong at_5 = (ulong)(v10 - group_base) + 0ul;
  if (at_5 > 1020ul) { record_trap(HERE, 262146u, 7124u, 0u, (uint)(group_base + at_5)); stopped[meeting] = 1u; goto meet46; }
  float v31 = as_float(*(__local u32*)((__local uchar*)group_memory + at_5));
  float v32 = v30 + v31;
  const ulong at_6 = (ulong)(v10 - group_base) + 0ul;
  if (at_6 > 1020ul) { record_trap(HERE, 262146u, 7128u, 0u, (uint)(group_base + at_6)); stopped[meeting] = 1u; goto meet46; }
  *(__local u32*)((__local uchar*)group_memory + at_6) = as_uint(v32);
 end2:;
 meet46:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v34 = (uint)((int)v7 > (int)31u);
  if (v34 != 0u) {
    goto end4;
  }
  uint v36 = v10 + 128u;
  const ulong at_7 = (ulong)(v36 - group_base) + 0ul;
  if (at_7 > 1020ul) { record_trap(HERE, 262146u, 7155u, 0u, (uint)(group_base + at_7)); stopped[meeting] = 1u; goto meet60; }
  float v37 = as_float(*(__local u32*)((__local uchar*)group_memory + at_7));
  const ulong at_8 = (ulong)(v10 - group_base) + 0ul;
  if (at_8 > 1020ul) { record_trap(HERE, 262146u, 7160u, 0u, (uint)(group_base + at_8)); stopped[meeting] = 1u; goto meet60; }
  float v38 = as_float(*(__local u32*)((__local uchar*)group_memory + at_8));
  float v39 = v37 + v38;
  const ulong at_9 = (ulong)(v10 - group_base) + 0ul;
  if (at_9 > 1020ul) { record_trap(HERE, 262146u, 7164u, 0u, (uint)(group_base + at_9)); stopped[meeting] = 1u; goto meet60; }
  *(__local u32*)((__local uchar*)group_memory + at_9) = as_uint(v39);
 end4:;
 meet60:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v41 = (uint)((int)v7 > (int)15u);
  if (v41 != 0u) {
    goto end6;
  }
  uint v43 = v10 + 64u;
  const ulong at_10 = (ulong)(v43 - group_base) + 0ul;
  if (at_10 > 1020ul) { record_trap(HERE, 262146u, 7191u, 0u, (uint)(group_base + at_10)); stopped[meeting] = 1u; goto meet74; }
  float v44 = as_float(*(__local u32*)((__local uchar*)group_memory + at_10));
  const ulong at_11 = (ulong)(v10 - group_base) + 0ul;
  if (at_11 > 1020ul) { record_trap(HERE, 262146u, 7196u, 0u, (uint)(group_base + at_11)); stopped[meeting] = 1u; goto meet74; }
  float v45 = as_float(*(__local u32*)((__local uchar*)group_memory + at_11));
  float v46 = v44 + v45;
  const ulong at_12 = (ulong)(v10 - group_base) + 0ul;
  if (at_12 > 1020ul) { record_trap(HERE, 262146u, 7200u, 0u, (uint)(group_base + at_12)); stopped[meeting] = 1u; goto meet74; }
  *(__local u32*)((__local uchar*)group_memory + at_12) = as_uint(v46);
 end6:;
 meet74:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v48 = (uint)((int)v7 > (int)7u);
  if (v48 != 0u) {
    goto end8;
  }
  uint v50 = v10 + 32u;
  const ulong at_13 = (ulong)(v50 - group_base) + 0ul;
  if (at_13 > 1020ul) { record_trap(HERE, 262146u, 7226u, 0u, (uint)(group_base + at_13)); stopped[meeting] = 1u; goto meet88; }
  float v51 = as_float(*(__local u32*)((__local uchar*)group_memory + at_13));
  const ulong at_14 = (ulong)(v10 - group_base) + 0ul;
  if (at_14 > 1020ul) { record_trap(HERE, 262146u, 7231u, 0u, (uint)(group_base + at_14)); stopped[meeting] = 1u; goto meet88; }
  float v52 = as_float(*(__local u32*)((__local uchar*)group_memory + at_14));
  float v53 = v51 + v52;
  const ulong at_15 = (ulong)(v10 - group_base) + 0ul;
  if (at_15 > 1020ul) { record_trap(HERE, 262146u, 7235u, 0u, (uint)(group_base + at_15)); stopped[meeting] = 1u; goto meet88; }
  *(__local u32*)((__local uchar*)group_memory + at_15) = as_uint(v53);
 end8:;
 meet88:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v55 = (uint)((int)v7 > (int)3u);
  if (v55 != 0u) {
    goto end10;
  }
  uint v57 = v10 + 16u;
  const ulong at_16 = (ulong)(v57 - group_base) + 0ul;
  if (at_16 > 1020ul) { record_trap(HERE, 262146u, 7261u, 0u, (uint)(group_base + at_16)); stopped[meeting] = 1u; goto meet102; }
  float v58 = as_float(*(__local u32*)((__local uchar*)group_memory + at_16));
  const ulong at_17 = (ulong)(v10 - group_base) + 0ul;
  if (at_17 > 1020ul) { record_trap(HERE, 262146u, 7266u, 0u, (uint)(group_base + at_17)); stopped[meeting] = 1u; goto meet102; }
  float v59 = as_float(*(__local u32*)((__local uchar*)group_memory + at_17));
  float v60 = v58 + v59;
  const ulong at_18 = (ulong)(v10 - group_base) + 0ul;
  if (at_18 > 1020ul) { record_trap(HERE, 262146u, 7270u, 0u, (uint)(group_base + at_18)); stopped[meeting] = 1u; goto meet102; }
  *(__local u32*)((__local uchar*)group_memory + at_18) = as_uint(v60);
 end10:;
 meet102:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v62 = (uint)((int)v7 > (int)1u);
  if (v62 != 0u) {
    goto end12;
  }
  uint v64 = v10 + 8u;
  const ulong at_19 = (ulong)(v64 - group_base) + 0ul;
  if (at_19 > 1020ul) { record_trap(HERE, 262146u, 7296u, 0u, (uint)(group_base + at_19)); stopped[meeting] = 1u; goto meet116; }
  float v65 = as_float(*(__local u32*)((__local uchar*)group_memory + at_19));
  const ulong at_20 = (ulong)(v10 - group_base) + 0ul;
  if (at_20 > 1020ul) { record_trap(HERE, 262146u, 7301u, 0u, (uint)(group_base + at_20)); stopped[meeting] = 1u; goto meet116; }
  float v66 = as_float(*(__local u32*)((__local uchar*)group_memory + at_20));
  float v67 = v65 + v66;
  const ulong at_21 = (ulong)(v10 - group_base) + 0ul;
  if (at_21 > 1020ul) { record_trap(HERE, 262146u, 7305u, 0u, (uint)(group_base + at_21)); stopped[meeting] = 1u; goto meet116; }
  *(__local u32*)((__local uchar*)group_memory + at_21) = as_uint(v67);
 end12:;
 meet116:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  uint v69 = (uint)((int)v7 > (int)0u);
  if (v69 != 0u) {
    goto end14;
  }
  uint v71 = v10 + 4u;
  const ulong at_22 = (ulong)(v71 - group_base) + 0ul;
  if (at_22 > 1020ul) { record_trap(HERE, 262146u, 7331u, 0u, (uint)(group_base + at_22)); stopped[meeting] = 1u; goto meet130; }
  float v72 = as_float(*(__local u32*)((__local uchar*)group_memory + at_22));
  const ulong at_23 = (ulong)(v10 - group_base) + 0ul;
  if (at_23 > 1020ul) { record_trap(HERE, 262146u, 7336u, 0u, (uint)(group_base + at_23)); stopped[meeting] = 1u; goto meet130; }
  float v73 = as_float(*(__local u32*)((__local uchar*)group_memory + at_23));
  float v74 = v72 + v73;
  const ulong at_24 = (ulong)(v10 - group_base) + 0ul;
  if (at_24 > 1020ul) { record_trap(HERE, 262146u, 7340u, 0u, (uint)(group_base + at_24)); stopped[meeting] = 1u; goto meet130; }
  *(__local u32*)((__local uchar*)group_memory + at_24) = as_uint(v74);
 end14:;
 meet130:;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (stopped[meeting] != 0u) return;
  meeting ^= 1u;
  if (v7 != 0u) {
    goto end16;
  }
  uint v76 = v5 << 2u;
  uint v77 = 131072u + v76;
  const ulong at_25 = (ulong)(v3 - group_base) + 0ul;
  if (at_25 > 1020ul) { record_trap(HERE, 262146u, 7366u, 0u, (uint)(group_base + at_25)); return; }
  float v78 = as_float(*(__local u32*)((__local uchar*)group_memory + at_25));
  uint v79 = v77 - 131072u;
  if (v79 >= places1_4) { record_trap(HERE, 262146u, 7369u, 0u, (uint)(a1 + (ulong)v79)); return; }
  *(__global u32*)(AT(__global, p1, (ulong)v79)) = as_uint(v78);
 end16:;
}
