// kernels_wasm: tiled_matmul
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
    __global const uchar* b1,
    ulong start1,
    __global uchar* b2,
    ulong start2,
    uint s3,
    uint s4,
    uint first_x,
    uint first_y,
    uint group_base) {
  __global const uchar* p0 = b0 + start0;
  __global const uchar* p1 = b1 + start1;
  __global uchar* p2 = b2 + start2;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  __local ulong group_memory[256] __attribute__((aligned(16)));
  {
    const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));
    const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)));
    for (uint i = at; i < 256u; i += size) group_memory[i] = 0ul;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint v6 = group_base + 0u;
  uint v8 = group_base + 1024u;
  uint v10 = y;
  uint v13 = x;
  uint v15 = (uint)get_local_id(1);
  float v16;
  uint v18 = (uint)((int)s4 >= (int)1u);
  if (v18 != 0u) {
    goto end1;
  }
  v16 = 0.0f;
  goto end0;
 end1:;
  uint v20 = v15 * s3;
  uint v22 = v20 << 2u;
  uint v24 = v13 << 2u;
  uint v25 = v22 + v24;
  uint v26 = 131072u + v25;
  uint v27 = v10 * s4;
  uint v29 = v27 << 2u;
  uint v30 = 131072u + v29;
  uint v32 = (uint)get_local_id(0);
  uint v34 = v32 << 2u;
  uint v35 = v30 + v34;
  uint v37 = s3 << 6u;
  uint v39 = v15 << 4u;
  uint v40 = v39 + v32;
  uint v42 = v40 << 2u;
  uint v43 = v8 + v42;
  uint v44 = v6 + v42;
  uint v46 = v8 + v34;
  uint v48 = v46 + 128u;
  uint v50 = v15 << 6u;
  uint v51 = v6 + v50;
  uint v53 = v51 + 8u;
  uint v55 = v46 + 192u;
  uint v57 = v51 + 12u;
  uint v59 = v46 + 256u;
  uint v61 = v46 + 320u;
  uint v63 = v51 + 20u;
  uint v65 = v46 + 384u;
  uint v67 = v51 + 24u;
  uint v69 = v46 + 448u;
  uint v71 = v51 + 28u;
  uint v73 = v46 + 512u;
  uint v75 = v51 + 32u;
  uint v77 = v46 + 576u;
  uint v79 = v51 + 36u;
  uint v81 = v46 + 640u;
  uint v83 = v51 + 40u;
  uint v85 = v46 + 704u;
  uint v87 = v51 + 44u;
  uint v89 = v46 + 768u;
  uint v91 = v51 + 48u;
  uint v93 = v46 + 832u;
  uint v95 = v51 + 52u;
  uint v97 = v46 + 896u;
  uint v99 = v51 + 56u;
  uint v101 = v46 + 960u;
  uint v103 = v51 + 60u;
  float v104;
  uint v105 = v35;
  uint v106 = v26;
  uint v107 = 0u;
  float v108 = 0.0f;
  for (;;) {
    uint v109 = v105 - 131072u;
    float v110 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v109)));
    const ulong at_0 = (ulong)(v44 - group_base) + 0ul;
    *(__local u32*)((__local uchar*)group_memory + at_0) = as_uint(v110);
    uint v111 = v106 - 131072u;
    float v112 = as_float(*(__global const u32*)(AT(__global const, p1, (ulong)v111)));
    const ulong at_1 = (ulong)(v43 - group_base) + 0ul;
    *(__local u32*)((__local uchar*)group_memory + at_1) = as_uint(v112);
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong at_2 = (ulong)(v51 - group_base) + 0ul;
    float v113 = as_float(*(__local u32*)((__local uchar*)group_memory + at_2));
    const ulong at_3 = (ulong)(v46 - group_base) + 0ul;
    float v114 = as_float(*(__local u32*)((__local uchar*)group_memory + at_3));
    float v115 = v113 * v114;
    float v116 = v108 + v115;
    uint v118 = v51 + 4u;
    const ulong at_4 = (ulong)(v118 - group_base) + 0ul;
    float v119 = as_float(*(__local u32*)((__local uchar*)group_memory + at_4));
    uint v121 = v46 + 64u;
    const ulong at_5 = (ulong)(v121 - group_base) + 0ul;
    float v122 = as_float(*(__local u32*)((__local uchar*)group_memory + at_5));
    float v123 = v119 * v122;
    float v124 = v116 + v123;
    const ulong at_6 = (ulong)(v53 - group_base) + 0ul;
    float v125 = as_float(*(__local u32*)((__local uchar*)group_memory + at_6));
    const ulong at_7 = (ulong)(v48 - group_base) + 0ul;
    float v126 = as_float(*(__local u32*)((__local uchar*)group_memory + at_7));
    float v127 = v125 * v126;
    float v128 = v124 + v127;
    const ulong at_8 = (ulong)(v57 - group_base) + 0ul;
    float v129 = as_float(*(__local u32*)((__local uchar*)group_memory + at_8));
    const ulong at_9 = (ulong)(v55 - group_base) + 0ul;
    float v130 = as_float(*(__local u32*)((__local uchar*)group_memory + at_9));
    float v131 = v129 * v130;
    float v132 = v128 + v131;
    uint v134 = v51 + 16u;
    const ulong at_10 = (ulong)(v134 - group_base) + 0ul;
    float v135 = as_float(*(__local u32*)((__local uchar*)group_memory + at_10));
    const ulong at_11 = (ulong)(v59 - group_base) + 0ul;
    float v136 = as_float(*(__local u32*)((__local uchar*)group_memory + at_11));
    float v137 = v135 * v136;
    float v138 = v132 + v137;
    const ulong at_12 = (ulong)(v63 - group_base) + 0ul;
    float v139 = as_float(*(__local u32*)((__local uchar*)group_memory + at_12));
    const ulong at_13 = (ulong)(v61 - group_base) + 0ul;
    float v140 = as_float(*(__local u32*)((__local uchar*)group_memory + at_13));
    float v141 = v139 * v140;
    float v142 = v138 + v141;
    const ulong at_14 = (ulong)(v67 - group_base) + 0ul;
    float v143 = as_float(*(__local u32*)((__local uchar*)group_memory + at_14));
    const ulong at_15 = (ulong)(v65 - group_base) + 0ul;
    float v144 = as_float(*(__local u32*)((__local uchar*)group_memory + at_15));
    float v145 = v143 * v144;
    float v146 = v142 + v145;
    const ulong at_16 = (ulong)(v71 - group_base) + 0ul;
    float v147 = as_float(*(__local u32*)((__local uchar*)group_memory + at_16));
    const ulong at_17 = (ulong)(v69 - group_base) + 0ul;
    float v148 = as_float(*(__local u32*)((__local uchar*)group_memory + at_17));
    float v149 = v147 * v148;
    float v150 = v146 + v149;
    const ulong at_18 = (ulong)(v75 - group_base) + 0ul;
    float v151 = as_float(*(__local u32*)((__local uchar*)group_memory + at_18));
    const ulong at_19 = (ulong)(v73 - group_base) + 0ul;
    float v152 = as_float(*(__local u32*)((__local uchar*)group_memory + at_19));
    float v153 = v151 * v152;
    float v154 = v150 + v153;
    const ulong at_20 = (ulong)(v79 - group_base) + 0ul;
    float v155 = as_float(*(__local u32*)((__local uchar*)group_memory + at_20));
    const ulong at_21 = (ulong)(v77 - group_base) + 0ul;
    float v156 = as_float(*(__local u32*)((__local uchar*)group_memory + at_21));
    float v157 = v155 * v156;
    float v158 = v154 + v157;
    const ulong at_22 = (ulong)(v83 - group_base) + 0ul;
    float v159 = as_float(*(__local u32*)((__local uchar*)group_memory + at_22));
    const ulong at_23 = (ulong)(v81 - group_base) + 0ul;
    float v160 = as_float(*(__local u32*)((__local uchar*)group_memory + at_23));
    float v161 = v159 * v160;
    float v162 = v158 + v161;
    const ulong at_24 = (ulong)(v87 - group_base) + 0ul;
    float v163 = as_float(*(__local u32*)((__local uchar*)group_memory + at_24));
    const ulong at_25 = (ulong)(v85 - group_base) + 0ul;
    float v164 = as_float(*(__local u32*)((__local uchar*)group_memory + at_25));
    float v165 = v163 * v164;
    float v166 = v162 + v165;
    const ulong at_26 = (ulong)(v91 - group_base) + 0ul;
    float v167 = as_float(*(__local u32*)((__local uchar*)group_memory + at_26));
    const ulong at_27 = (ulong)(v89 - group_base) + 0ul;
    float v168 = as_float(*(__local u32*)((__local uchar*)group_memory + at_27));
    float v169 = v167 * v168;
    float v170 = v166 + v169;
    const ulong at_28 = (ulong)(v95 - group_base) + 0ul;
    float v171 = as_float(*(__local u32*)((__local uchar*)group_memory + at_28));
    const ulong at_29 = (ulong)(v93 - group_base) + 0ul;
    float v172 = as_float(*(__local u32*)((__local uchar*)group_memory + at_29));
    float v173 = v171 * v172;
    float v174 = v170 + v173;
    const ulong at_30 = (ulong)(v99 - group_base) + 0ul;
    float v175 = as_float(*(__local u32*)((__local uchar*)group_memory + at_30));
    const ulong at_31 = (ulong)(v97 - group_base) + 0ul;
    float v176 = as_float(*(__local u32*)((__local uchar*)group_memory + at_31));
    float v177 = v175 * v176;
    float v178 = v174 + v177;
    const ulong at_32 = (ulong)(v103 - group_base) + 0ul;
    float v179 = as_float(*(__local u32*)((__local uchar*)group_memory + at_32));
    const ulong at_33 = (ulong)(v101 - group_base) + 0ul;
    float v180 = as_float(*(__local u32*)((__local uchar*)group_memory + at_33));
    float v181 = v179 * v180;
    float v182 = v178 + v181;
    uint v183 = v106 + v37;
    uint v185 = v105 + 64u;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint v187 = v107 + 16u;
    uint v188 = (uint)((int)v187 < (int)s4);
    if (v188 != 0u) {
      v105 = v185;
      v106 = v183;
      v107 = v187;
      v108 = v182;
      continue;
    }
    v104 = v182;
    break;
  }
  v16 = v104;
 end0:;
  uint v189 = v10 * s3;
  uint v191 = v189 << 2u;
  uint v192 = 131072u + v191;
  uint v194 = v13 << 2u;
  uint v195 = v192 + v194;
  uint v196 = v195 - 131072u;
  *(__global u32*)(AT(__global, p2, (ulong)v196)) = as_uint(v16);
}

__kernel GROUP void checked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global const uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    __global uchar* b2,
    ulong n2,
    ulong start2,
    uint a2,
    uint s3,
    uint s4,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index,
    uint group_base) {
  const uint places0_4 = n0 >= 4ul ? (uint)(n0 - 3ul) : 0u;
  const uint places1_4 = n1 >= 4ul ? (uint)(n1 - 3ul) : 0u;
  const uint places2_4 = n2 >= 4ul ? (uint)(n2 - 3ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global const uchar* p1 = b1 + start1;
  __global uchar* p2 = b2 + start2;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  __local ulong group_memory[256] __attribute__((aligned(16)));
  __local uint stopped[2];  // stopped[meeting] is 1 when an instance has trapped before that barrier; the entries alternate.
  uint meeting = 0u;
  {
    const uint size = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));
    const uint at = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)));
    for (uint i = at; i < 256u; i += size) group_memory[i] = 0ul;
    for (uint i = at; i < 2u; i += size) stopped[i] = 0u;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint v6 = group_base + 0u;
  uint v8 = group_base + 1024u;
  uint v10 = y;
  uint v13 = x;
  uint v15 = (uint)get_local_id(1);
  float v16;
  uint v18 = (uint)((int)s4 >= (int)1u);
  if (v18 != 0u) {
    goto end1;
  }
  v16 = 0.0f;
  goto end0;
 end1:;
  uint v20 = v15 * s3;
  uint v22 = v20 << 2u;
  uint v24 = v13 << 2u;
  uint v25 = v22 + v24;
  uint v26 = 131072u + v25;
  uint v27 = v10 * s4;
  uint v29 = v27 << 2u;
  uint v30 = 131072u + v29;
  uint v32 = (uint)get_local_id(0);
  uint v34 = v32 << 2u;
  uint v35 = v30 + v34;
  uint v37 = s3 << 6u;
  uint v39 = v15 << 4u;
  uint v40 = v39 + v32;
  uint v42 = v40 << 2u;
  uint v43 = v8 + v42;
  uint v44 = v6 + v42;
  uint v46 = v8 + v34;
  uint v48 = v46 + 128u;
  uint v50 = v15 << 6u;
  uint v51 = v6 + v50;
  uint v53 = v51 + 8u;
  uint v55 = v46 + 192u;
  uint v57 = v51 + 12u;
  uint v59 = v46 + 256u;
  uint v61 = v46 + 320u;
  uint v63 = v51 + 20u;
  uint v65 = v46 + 384u;
  uint v67 = v51 + 24u;
  uint v69 = v46 + 448u;
  uint v71 = v51 + 28u;
  uint v73 = v46 + 512u;
  uint v75 = v51 + 32u;
  uint v77 = v46 + 576u;
  uint v79 = v51 + 36u;
  uint v81 = v46 + 640u;
  uint v83 = v51 + 40u;
  uint v85 = v46 + 704u;
  uint v87 = v51 + 44u;
  uint v89 = v46 + 768u;
  uint v91 = v51 + 48u;
  uint v93 = v46 + 832u;
  uint v95 = v51 + 52u;
  uint v97 = v46 + 896u;
  uint v99 = v51 + 56u;
  uint v101 = v46 + 960u;
  uint v103 = v51 + 60u;
  float v104;
  uint v105 = v35;
  uint v106 = v26;
  uint v107 = 0u;
  float v108 = 0.0f;
  for (;;) {
    uint v109 = v105 - 131072u;
    if (v109 >= places0_4) { record_trap(HERE, 262146u, 6698u, 0u, (uint)(a0 + (ulong)v109)); stopped[meeting] = 1u; goto meet111; }
    float v110 = as_float(*(__global const u32*)(AT(__global const, p0, (ulong)v109)));
    const ulong at_0 = (ulong)(v44 - group_base) + 0ul;
    if (at_0 > 2044ul) { record_trap(HERE, 262146u, 6701u, 0u, (uint)(group_base + at_0)); stopped[meeting] = 1u; goto meet111; }
    *(__local u32*)((__local uchar*)group_memory + at_0) = as_uint(v110);
    uint v111 = v106 - 131072u;
    if (v111 >= places1_4) { record_trap(HERE, 262146u, 6708u, 0u, (uint)(a1 + (ulong)v111)); stopped[meeting] = 1u; goto meet111; }
    float v112 = as_float(*(__global const u32*)(AT(__global const, p1, (ulong)v111)));
    const ulong at_1 = (ulong)(v43 - group_base) + 0ul;
    if (at_1 > 2044ul) { record_trap(HERE, 262146u, 6711u, 0u, (uint)(group_base + at_1)); stopped[meeting] = 1u; goto meet111; }
    *(__local u32*)((__local uchar*)group_memory + at_1) = as_uint(v112);
   meet111:;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (stopped[meeting] != 0u) return;
    meeting ^= 1u;
    const ulong at_2 = (ulong)(v51 - group_base) + 0ul;
    if (at_2 > 2044ul) { record_trap(HERE, 262146u, 6724u, 0u, (uint)(group_base + at_2)); stopped[meeting] = 1u; goto meet185; }
    float v113 = as_float(*(__local u32*)((__local uchar*)group_memory + at_2));
    const ulong at_3 = (ulong)(v46 - group_base) + 0ul;
    if (at_3 > 2044ul) { record_trap(HERE, 262146u, 6729u, 0u, (uint)(group_base + at_3)); stopped[meeting] = 1u; goto meet185; }
    float v114 = as_float(*(__local u32*)((__local uchar*)group_memory + at_3));
    float v115 = v113 * v114;
    float v116 = v108 + v115;
    uint v118 = v51 + 4u;
    const ulong at_4 = (ulong)(v118 - group_base) + 0ul;
    if (at_4 > 2044ul) { record_trap(HERE, 262146u, 6739u, 0u, (uint)(group_base + at_4)); stopped[meeting] = 1u; goto meet185; }
    float v119 = as_float(*(__local u32*)((__local uchar*)group_memory + at_4));
    uint v121 = v46 + 64u;
    const ulong at_5 = (ulong)(v121 - group_base) + 0ul;
    if (at_5 > 2044ul) { record_trap(HERE, 262146u, 6748u, 0u, (uint)(group_base + at_5)); stopped[meeting] = 1u; goto meet185; }
    float v122 = as_float(*(__local u32*)((__local uchar*)group_memory + at_5));
    float v123 = v119 * v122;
    float v124 = v116 + v123;
    const ulong at_6 = (ulong)(v53 - group_base) + 0ul;
    if (at_6 > 2044ul) { record_trap(HERE, 262146u, 6755u, 0u, (uint)(group_base + at_6)); stopped[meeting] = 1u; goto meet185; }
    float v125 = as_float(*(__local u32*)((__local uchar*)group_memory + at_6));
    const ulong at_7 = (ulong)(v48 - group_base) + 0ul;
    if (at_7 > 2044ul) { record_trap(HERE, 262146u, 6760u, 0u, (uint)(group_base + at_7)); stopped[meeting] = 1u; goto meet185; }
    float v126 = as_float(*(__local u32*)((__local uchar*)group_memory + at_7));
    float v127 = v125 * v126;
    float v128 = v124 + v127;
    const ulong at_8 = (ulong)(v57 - group_base) + 0ul;
    if (at_8 > 2044ul) { record_trap(HERE, 262146u, 6767u, 0u, (uint)(group_base + at_8)); stopped[meeting] = 1u; goto meet185; }
    float v129 = as_float(*(__local u32*)((__local uchar*)group_memory + at_8));
    const ulong at_9 = (ulong)(v55 - group_base) + 0ul;
    if (at_9 > 2044ul) { record_trap(HERE, 262146u, 6772u, 0u, (uint)(group_base + at_9)); stopped[meeting] = 1u; goto meet185; }
    float v130 = as_float(*(__local u32*)((__local uchar*)group_memory + at_9));
    float v131 = v129 * v130;
    float v132 = v128 + v131;
    uint v134 = v51 + 16u;
    const ulong at_10 = (ulong)(v134 - group_base) + 0ul;
    if (at_10 > 2044ul) { record_trap(HERE, 262146u, 6782u, 0u, (uint)(group_base + at_10)); stopped[meeting] = 1u; goto meet185; }
    float v135 = as_float(*(__local u32*)((__local uchar*)group_memory + at_10));
    const ulong at_11 = (ulong)(v59 - group_base) + 0ul;
    if (at_11 > 2044ul) { record_trap(HERE, 262146u, 6787u, 0u, (uint)(group_base + at_11)); stopped[meeting] = 1u; goto meet185; }
    float v136 = as_float(*(__local u32*)((__local uchar*)group_memory + at_11));
    float v137 = v135 * v136;
    float v138 = v132 + v137;
    const ulong at_12 = (ulong)(v63 - group_base) + 0ul;
    if (at_12 > 2044ul) { record_trap(HERE, 262146u, 6794u, 0u, (uint)(group_base + at_12)); stopped[meeting] = 1u; goto meet185; }
    float v139 = as_float(*(__local u32*)((__local uchar*)group_memory + at_12));
    const ulong at_13 = (ulong)(v61 - group_base) + 0ul;
    if (at_13 > 2044ul) { record_trap(HERE, 262146u, 6799u, 0u, (uint)(group_base + at_13)); stopped[meeting] = 1u; goto meet185; }
    float v140 = as_float(*(__local u32*)((__local uchar*)group_memory + at_13));
    float v141 = v139 * v140;
    float v142 = v138 + v141;
    const ulong at_14 = (ulong)(v67 - group_base) + 0ul;
    if (at_14 > 2044ul) { record_trap(HERE, 262146u, 6806u, 0u, (uint)(group_base + at_14)); stopped[meeting] = 1u; goto meet185; }
    float v143 = as_float(*(__local u32*)((__local uchar*)group_memory + at_14));
    const ulong at_15 = (ulong)(v65 - group_base) + 0ul;
    if (at_15 > 2044ul) { record_trap(HERE, 262146u, 6811u, 0u, (uint)(group_base + at_15)); stopped[meeting] = 1u; goto meet185; }
    float v144 = as_float(*(__local u32*)((__local uchar*)group_memory + at_15));
    float v145 = v143 * v144;
    float v146 = v142 + v145;
    const ulong at_16 = (ulong)(v71 - group_base) + 0ul;
    if (at_16 > 2044ul) { record_trap(HERE, 262146u, 6818u, 0u, (uint)(group_base + at_16)); stopped[meeting] = 1u; goto meet185; }
    float v147 = as_float(*(__local u32*)((__local uchar*)group_memory + at_16));
    const ulong at_17 = (ulong)(v69 - group_base) + 0ul;
    if (at_17 > 2044ul) { record_trap(HERE, 262146u, 6823u, 0u, (uint)(group_base + at_17)); stopped[meeting] = 1u; goto meet185; }
    float v148 = as_float(*(__local u32*)((__local uchar*)group_memory + at_17));
    float v149 = v147 * v148;
    float v150 = v146 + v149;
    const ulong at_18 = (ulong)(v75 - group_base) + 0ul;
    if (at_18 > 2044ul) { record_trap(HERE, 262146u, 6830u, 0u, (uint)(group_base + at_18)); stopped[meeting] = 1u; goto meet185; }
    float v151 = as_float(*(__local u32*)((__local uchar*)group_memory + at_18));
    const ulong at_19 = (ulong)(v73 - group_base) + 0ul;
    if (at_19 > 2044ul) { record_trap(HERE, 262146u, 6835u, 0u, (uint)(group_base + at_19)); stopped[meeting] = 1u; goto meet185; }
    float v152 = as_float(*(__local u32*)((__local uchar*)group_memory + at_19));
    float v153 = v151 * v152;
    float v154 = v150 + v153;
    const ulong at_20 = (ulong)(v79 - group_base) + 0ul;
    if (at_20 > 2044ul) { record_trap(HERE, 262146u, 6842u, 0u, (uint)(group_base + at_20)); stopped[meeting] = 1u; goto meet185; }
    float v155 = as_float(*(__local u32*)((__local uchar*)group_memory + at_20));
    const ulong at_21 = (ulong)(v77 - group_base) + 0ul;
    if (at_21 > 2044ul) { record_trap(HERE, 262146u, 6847u, 0u, (uint)(group_base + at_21)); stopped[meeting] = 1u; goto meet185; }
    float v156 = as_float(*(__local u32*)((__local uchar*)group_memory + at_21));
    float v157 = v155 * v156;
    float v158 = v154 + v157;
    const ulong at_22 = (ulong)(v83 - group_base) + 0ul;
    if (at_22 > 2044ul) { record_trap(HERE, 262146u, 6854u, 0u, (uint)(group_base + at_22)); stopped[meeting] = 1u; goto meet185; }
    float v159 = as_float(*(__local u32*)((__local uchar*)group_memory + at_22));
    const ulong at_23 = (ulong)(v81 - group_base) + 0ul;
    if (at_23 > 2044ul) { record_trap(HERE, 262146u, 6859u, 0u, (uint)(group_base + at_23)); stopped[meeting] = 1u; goto meet185; }
    float v160 = as_float(*(__local u32*)((__local uchar*)group_memory + at_23));
    float v161 = v159 * v160;
    float v162 = v158 + v161;
    const ulong at_24 = (ulong)(v87 - group_base) + 0ul;
    if (at_24 > 2044ul) { record_trap(HERE, 262146u, 6866u, 0u, (uint)(group_base + at_24)); stopped[meeting] = 1u; goto meet185; }
    float v163 = as_float(*(__local u32*)((__local uchar*)group_memory + at_24));
    const ulong at_25 = (ulong)(v85 - group_base) + 0ul;
    if (at_25 > 2044ul) { record_trap(HERE, 262146u, 6871u, 0u, (uint)(group_base + at_25)); stopped[meeting] = 1u; goto meet185; }
    float v164 = as_float(*(__local u32*)((__local uchar*)group_memory + at_25));
    float v165 = v163 * v164;
    float v166 = v162 + v165;
    const ulong at_26 = (ulong)(v91 - group_base) + 0ul;
    if (at_26 > 2044ul) { record_trap(HERE, 262146u, 6878u, 0u, (uint)(group_base + at_26)); stopped[meeting] = 1u; goto meet185; }
    float v167 = as_float(*(__local u32*)((__local uchar*)group_memory + at_26));
    const ulong at_27 = (ulong)(v89 - group_base) + 0ul;
    if (at_27 > 2044ul) { record_trap(HERE, 262146u, 6883u, 0u, (uint)(group_base + at_27)); stopped[meeting] = 1u; goto meet185; }
    float v168 = as_float(*(__local u32*)((__local uchar*)group_memory + at_27));
    float v169 = v167 * v168;
    float v170 = v166 + v169;
    const ulong at_28 = (ulong)(v95 - group_base) + 0ul;
    if (at_28 > 2044ul) { record_trap(HERE, 262146u, 6890u, 0u, (uint)(group_base + at_28)); stopped[meeting] = 1u; goto meet185; }
    float v171 = as_float(*(__local u32*)((__local uchar*)group_memory + at_28));
    const ulong at_29 = (ulong)(v93 - group_base) + 0ul;
    if (at_29 > 2044ul) { record_trap(HERE, 262146u, 6895u, 0u, (uint)(group_base + at_29)); stopped[meeting] = 1u; goto meet185; }
    float v172 = as_float(*(__local u32*)((__local uchar*)group_memory + at_29));
    float v173 = v171 * v172;
    float v174 = v170 + v173;
    const ulong at_30 = (ulong)(v99 - group_base) + 0ul;
    if (at_30 > 2044ul) { record_trap(HERE, 262146u, 6902u, 0u, (uint)(group_base + at_30)); stopped[meeting] = 1u; goto meet185; }
    float v175 = as_float(*(__local u32*)((__local uchar*)group_memory + at_30));
    const ulong at_31 = (ulong)(v97 - group_base) + 0ul;
    if (at_31 > 2044ul) { record_trap(HERE, 262146u, 6907u, 0u, (uint)(group_base + at_31)); stopped[meeting] = 1u; goto meet185; }
    float v176 = as_float(*(__local u32*)((__local uchar*)group_memory + at_31));
    float v177 = v175 * v176;
    float v178 = v174 + v177;
    const ulong at_32 = (ulong)(v103 - group_base) + 0ul;
    if (at_32 > 2044ul) { record_trap(HERE, 262146u, 6914u, 0u, (uint)(group_base + at_32)); stopped[meeting] = 1u; goto meet185; }
    float v179 = as_float(*(__local u32*)((__local uchar*)group_memory + at_32));
    const ulong at_33 = (ulong)(v101 - group_base) + 0ul;
    if (at_33 > 2044ul) { record_trap(HERE, 262146u, 6919u, 0u, (uint)(group_base + at_33)); stopped[meeting] = 1u; goto meet185; }
    float v180 = as_float(*(__local u32*)((__local uchar*)group_memory + at_33));
    float v181 = v179 * v180;
    float v182 = v178 + v181;
    uint v183 = v106 + v37;
    uint v185 = v105 + 64u;
   meet185:;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (stopped[meeting] != 0u) return;
    meeting ^= 1u;
    uint v187 = v107 + 16u;
    uint v188 = (uint)((int)v187 < (int)s4);
    if (v188 != 0u) {
      v105 = v185;
      v106 = v183;
      v107 = v187;
      v108 = v182;
      continue;
    }
    v104 = v182;
    break;
  }
  v16 = v104;
 end0:;
  uint v189 = v10 * s3;
  uint v191 = v189 << 2u;
  uint v192 = 131072u + v191;
  uint v194 = v13 << 2u;
  uint v195 = v192 + v194;
  uint v196 = v195 - 131072u;
  if (v196 >= places2_4) { record_trap(HERE, 262146u, 6980u, 0u, (uint)(a2 + (ulong)v196)); return; }
  *(__global u32*)(AT(__global, p2, (ulong)v196)) = as_uint(v16);
}
