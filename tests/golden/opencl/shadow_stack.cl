// shadow_stack_wasm: median, sort
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
    ulong start0,
    __global uchar* b1,
    ulong start1,
    uint s2,
    uint s3,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  ulong own0[4] = {0ul};
  uint g0 = 65536u;
  uint v4 = g0;
  uint v6 = v4 - 32u;
  g0 = v6;
  uint v8 = x;
  uint v10 = y;
  uint v12 = (uint)((int)v10 > (int)0u);
  uint v13 = (uint)((int)v10 <= (int)s3);
  uint v14 = v12 & v13;
  uint v16 = v8 + 0xffffffffu;
  uint v18 = v10 + 0xffffffffu;
  uint v19 = v18 * s2;
  uint v21 = v19 << 1u;
  uint v22 = 131072u + v21;
  uint v23;
  uint v24;
  uint v26 = (uint)((int)v8 >= (int)1u);
  if (v26 != 0u) {
    goto end1;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end1:;
  uint v28 = (uint)((int)v8 <= (int)s2);
  if (v28 != 0u) {
    goto end3;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end3:;
  uint v31 = (uint)(v14 == 0u);
  if (v31 != 0u) {
    v23 = v6;
    v24 = 0u;
    goto end0;
  }
  uint v34 = v16 << 1u;
  uint v35 = v22 + v34;
  uint v229 = v35 - 131072u;
  uint v36 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v229)));
  *(__private u16*)((__private uchar*)own0 + min((v6 + 0xffff0020u), 30u)) = (ushort)v36;
  uint v38 = v6 | 2u;
  v23 = v38;
  v24 = 1u;
 end0:;
  uint v39 = (uint)((int)v8 < (int)s2);
  uint v40;
  uint v42 = (uint)((int)v8 < (int)0u);
  if (v42 != 0u) {
    v40 = v24;
    goto end6;
  }
  uint v43 = v39 & v14;
  uint v44 = (uint)(v43 == 0u);
  if (v44 != 0u) {
    v40 = v24;
    goto end6;
  }
  uint v46 = v8 << 1u;
  uint v47 = v22 + v46;
  uint v230 = v47 - 131072u;
  uint v48 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v230)));
  *(__private u16*)((__private uchar*)own0 + min((v23 + 0xffff0020u), 30u)) = (ushort)v48;
  uint v50 = v24 + 1u;
  v40 = v50;
 end6:;
  uint v51;
  uint v53 = (uint)((int)v8 < (int)0xffffffffu);
  if (v53 != 0u) {
    v51 = v40;
    goto end9;
  }
  uint v55 = v8 + 1u;
  uint v56 = (uint)((int)v55 < (int)s2);
  uint v57 = v56 & v14;
  uint v58 = (uint)(v57 == 0u);
  if (v58 != 0u) {
    v51 = v40;
    goto end9;
  }
  uint v60 = v40 << 1u;
  uint v61 = v6 | v60;
  uint v63 = v55 << 1u;
  uint v64 = v22 + v63;
  uint v231 = v64 - 131072u;
  uint v65 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v231)));
  *(__private u16*)((__private uchar*)own0 + min((v61 + 0xffff0020u), 30u)) = (ushort)v65;
  uint v67 = v40 + 1u;
  v51 = v67;
 end9:;
  uint v69 = (uint)((int)v10 > (int)0xffffffffu);
  uint v70 = (uint)((int)v10 < (int)s3);
  uint v71 = v69 & v70;
  uint v72 = v10 * s2;
  uint v74 = v72 << 1u;
  uint v75 = 131072u + v74;
  uint v76;
  uint v78 = (uint)((int)v8 < (int)1u);
  if (v78 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v79 = (uint)((int)v8 > (int)s2);
  if (v79 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v80 = (uint)(v71 == 0u);
  if (v80 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v82 = v51 << 1u;
  uint v83 = v6 | v82;
  uint v85 = v16 << 1u;
  uint v86 = v75 + v85;
  uint v232 = v86 - 131072u;
  uint v87 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v232)));
  *(__private u16*)((__private uchar*)own0 + min((v83 + 0xffff0020u), 30u)) = (ushort)v87;
  uint v89 = v51 + 1u;
  v76 = v89;
 end12:;
  uint v90;
  uint v92 = (uint)((int)v8 < (int)0u);
  if (v92 != 0u) {
    v90 = v76;
    goto end16;
  }
  uint v93 = v39 & v71;
  uint v94 = (uint)(v93 == 0u);
  if (v94 != 0u) {
    v90 = v76;
    goto end16;
  }
  uint v96 = v76 << 1u;
  uint v97 = v6 + v96;
  uint v99 = v8 << 1u;
  uint v100 = v75 + v99;
  uint v233 = v100 - 131072u;
  uint v101 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v233)));
  *(__private u16*)((__private uchar*)own0 + min((v97 + 0xffff0020u), 30u)) = (ushort)v101;
  uint v103 = v76 + 1u;
  v90 = v103;
 end16:;
  uint v104;
  uint v106 = (uint)((int)v8 < (int)0xffffffffu);
  if (v106 != 0u) {
    v104 = v90;
    goto end19;
  }
  uint v108 = v8 + 1u;
  uint v109 = (uint)((int)v108 < (int)s2);
  uint v110 = v109 & v71;
  uint v111 = (uint)(v110 == 0u);
  if (v111 != 0u) {
    v104 = v90;
    goto end19;
  }
  uint v113 = v90 << 1u;
  uint v114 = v6 + v113;
  uint v116 = v108 << 1u;
  uint v117 = v75 + v116;
  uint v234 = v117 - 131072u;
  uint v118 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v234)));
  *(__private u16*)((__private uchar*)own0 + min((v114 + 0xffff0020u), 30u)) = (ushort)v118;
  uint v120 = v90 + 1u;
  v104 = v120;
 end19:;
  uint v122 = (uint)((int)v10 > (int)0xfffffffeu);
  uint v124 = v10 + 1u;
  uint v125 = (uint)((int)v124 < (int)s3);
  uint v126 = v122 & v125;
  uint v127 = v124 * s2;
  uint v129 = v127 << 1u;
  uint v130 = 131072u + v129;
  uint v131;
  uint v133 = (uint)((int)v8 < (int)1u);
  if (v133 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v134 = (uint)((int)v8 > (int)s2);
  if (v134 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v135 = (uint)(v126 == 0u);
  if (v135 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v137 = v104 << 1u;
  uint v138 = v6 + v137;
  uint v140 = v16 << 1u;
  uint v141 = v130 + v140;
  uint v235 = v141 - 131072u;
  uint v142 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v235)));
  *(__private u16*)((__private uchar*)own0 + min((v138 + 0xffff0020u), 30u)) = (ushort)v142;
  uint v144 = v104 + 1u;
  v131 = v144;
 end22:;
  uint v145;
  uint v147 = (uint)((int)v8 < (int)0u);
  if (v147 != 0u) {
    v145 = v131;
    goto end26;
  }
  uint v148 = v39 & v126;
  uint v149 = (uint)(v148 == 0u);
  if (v149 != 0u) {
    v145 = v131;
    goto end26;
  }
  uint v151 = v131 << 1u;
  uint v152 = v6 + v151;
  uint v154 = v8 << 1u;
  uint v155 = v130 + v154;
  uint v236 = v155 - 131072u;
  uint v156 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v236)));
  *(__private u16*)((__private uchar*)own0 + min((v152 + 0xffff0020u), 30u)) = (ushort)v156;
  uint v158 = v131 + 1u;
  v145 = v158;
 end26:;
  uint v159;
  uint v161 = (uint)((int)v8 < (int)0xffffffffu);
  if (v161 != 0u) {
    v159 = v145;
    goto end29;
  }
  uint v163 = v8 + 1u;
  uint v164 = (uint)((int)v163 < (int)s2);
  uint v165 = v164 & v126;
  uint v166 = (uint)(v165 == 0u);
  if (v166 != 0u) {
    v159 = v145;
    goto end29;
  }
  uint v168 = v145 << 1u;
  uint v169 = v6 + v168;
  uint v171 = v163 << 1u;
  uint v172 = v130 + v171;
  uint v237 = v172 - 131072u;
  uint v173 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v237)));
  *(__private u16*)((__private uchar*)own0 + min((v169 + 0xffff0020u), 30u)) = (ushort)v173;
  uint v175 = v145 + 1u;
  v159 = v175;
 end29:;
  uint v177 = (uint)((int)v159 < (int)2u);
  if (v177 != 0u) {
    goto end33;
  }
  uint v180 = v6;
  uint v181 = 2u;
  uint v182 = 1u;
  for (;;) {
    uint v184 = v182 << 1u;
    uint v185 = v6 + v184;
    if ((ulong)v185 - 65504ul > 30ul) { record_trap(HERE, 131074u, 826u, 1u, (uint)(ulong)v185); return; }
    uint v186 = (uint)(once32((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v185 - 65504ul))));
    uint v188 = v186 & 65535u;
    uint v189;
    uint v190;
    uint v191 = v180;
    uint v192 = v181;
    for (;;) {
      if ((ulong)v191 - 65504ul > 30ul) { record_trap(HERE, 131074u, 854u, 1u, (uint)(ulong)v191); return; }
      uint v193 = (uint)(once32((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v191 - 65504ul))));
      uint v194 = (uint)(v193 <= v188);
      if (v194 != 0u) {
        v190 = v192;
        goto end37;
      }
      uint v196 = v191 + 2u;
      if ((ulong)v196 - 65504ul > 30ul) { record_trap(HERE, 131074u, 871u, 1u, (uint)(ulong)v196); return; }
      *(__private u16*)((__private uchar*)own0 + ((ulong)v196 - 65504ul)) = (ushort)v193;
      uint v198 = v191 + 0xfffffffeu;
      uint v200 = v192 + 0xffffffffu;
      uint v202 = (uint)((int)v200 > (int)1u);
      if (v202 != 0u) {
        v191 = v198;
        v192 = v200;
        continue;
      }
      break;
    }
    v189 = 0u;
    goto end36;
   end37:;
    uint v205 = v190 + 0xffffffffu;
    v189 = v205;
   end36:;
    uint v207 = v189 << 1u;
    uint v208 = v6 + v207;
    if ((ulong)v208 - 65504ul > 30ul) { record_trap(HERE, 131074u, 919u, 1u, (uint)(ulong)v208); return; }
    *(__private u16*)((__private uchar*)own0 + ((ulong)v208 - 65504ul)) = (ushort)v186;
    uint v210 = v180 + 2u;
    uint v212 = v181 + 1u;
    uint v214 = v182 + 1u;
    uint v215 = (uint)(v214 != v159);
    if (v215 != 0u) {
      v180 = v210;
      v181 = v212;
      v182 = v214;
      continue;
    }
    break;
  }
 end33:;
  uint v217 = v72 << 1u;
  uint v218 = 131072u + v217;
  uint v220 = v8 << 1u;
  uint v221 = v218 + v220;
  uint v223 = v159 & 510u;
  uint v224 = v6 + v223;
  uint v225 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + min((v224 + 0xffff0020u), 30u)));
  uint v228 = v221 - 131072u;
  *(__global u16*)(AT(__global, p1, (ulong)v228)) = (ushort)v225;
  uint v227 = v6 + 32u;
  g0 = v227;
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
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  const uint places0_2 = n0 >= 2ul ? (uint)(n0 - 1ul) : 0u;
  const uint places1_2 = n1 >= 2ul ? (uint)(n1 - 1ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  ulong own0[4] = {0ul};
  uint g0 = 65536u;
  uint v4 = g0;
  uint v6 = v4 - 32u;
  g0 = v6;
  uint v8 = x;
  uint v10 = y;
  uint v12 = (uint)((int)v10 > (int)0u);
  uint v13 = (uint)((int)v10 <= (int)s3);
  uint v14 = v12 & v13;
  uint v16 = v8 + 0xffffffffu;
  uint v18 = v10 + 0xffffffffu;
  uint v19 = v18 * s2;
  uint v21 = v19 << 1u;
  uint v22 = 131072u + v21;
  uint v23;
  uint v24;
  uint v26 = (uint)((int)v8 >= (int)1u);
  if (v26 != 0u) {
    goto end1;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end1:;
  uint v28 = (uint)((int)v8 <= (int)s2);
  if (v28 != 0u) {
    goto end3;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end3:;
  uint v31 = (uint)(v14 == 0u);
  if (v31 != 0u) {
    v23 = v6;
    v24 = 0u;
    goto end0;
  }
  uint v34 = v16 << 1u;
  uint v35 = v22 + v34;
  uint v229 = v35 - 131072u;
  if (v229 >= places0_2) { record_trap(HERE, 131074u, 257u, 0u, (uint)(a0 + (ulong)v229)); return; }
  uint v36 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v229)));
  *(__private u16*)((__private uchar*)own0 + min((v6 + 0xffff0020u), 30u)) = (ushort)v36;
  uint v38 = v6 | 2u;
  v23 = v38;
  v24 = 1u;
 end0:;
  uint v39 = (uint)((int)v8 < (int)s2);
  uint v40;
  uint v42 = (uint)((int)v8 < (int)0u);
  if (v42 != 0u) {
    v40 = v24;
    goto end6;
  }
  uint v43 = v39 & v14;
  uint v44 = (uint)(v43 == 0u);
  if (v44 != 0u) {
    v40 = v24;
    goto end6;
  }
  uint v46 = v8 << 1u;
  uint v47 = v22 + v46;
  uint v230 = v47 - 131072u;
  if (v230 >= places0_2) { record_trap(HERE, 131074u, 305u, 0u, (uint)(a0 + (ulong)v230)); return; }
  uint v48 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v230)));
  *(__private u16*)((__private uchar*)own0 + min((v23 + 0xffff0020u), 30u)) = (ushort)v48;
  uint v50 = v24 + 1u;
  v40 = v50;
 end6:;
  uint v51;
  uint v53 = (uint)((int)v8 < (int)0xffffffffu);
  if (v53 != 0u) {
    v51 = v40;
    goto end9;
  }
  uint v55 = v8 + 1u;
  uint v56 = (uint)((int)v55 < (int)s2);
  uint v57 = v56 & v14;
  uint v58 = (uint)(v57 == 0u);
  if (v58 != 0u) {
    v51 = v40;
    goto end9;
  }
  uint v60 = v40 << 1u;
  uint v61 = v6 | v60;
  uint v63 = v55 << 1u;
  uint v64 = v22 + v63;
  uint v231 = v64 - 131072u;
  if (v231 >= places0_2) { record_trap(HERE, 131074u, 360u, 0u, (uint)(a0 + (ulong)v231)); return; }
  uint v65 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v231)));
  *(__private u16*)((__private uchar*)own0 + min((v61 + 0xffff0020u), 30u)) = (ushort)v65;
  uint v67 = v40 + 1u;
  v51 = v67;
 end9:;
  uint v69 = (uint)((int)v10 > (int)0xffffffffu);
  uint v70 = (uint)((int)v10 < (int)s3);
  uint v71 = v69 & v70;
  uint v72 = v10 * s2;
  uint v74 = v72 << 1u;
  uint v75 = 131072u + v74;
  uint v76;
  uint v78 = (uint)((int)v8 < (int)1u);
  if (v78 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v79 = (uint)((int)v8 > (int)s2);
  if (v79 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v80 = (uint)(v71 == 0u);
  if (v80 != 0u) {
    v76 = v51;
    goto end12;
  }
  uint v82 = v51 << 1u;
  uint v83 = v6 | v82;
  uint v85 = v16 << 1u;
  uint v86 = v75 + v85;
  uint v232 = v86 - 131072u;
  if (v232 >= places0_2) { record_trap(HERE, 131074u, 439u, 0u, (uint)(a0 + (ulong)v232)); return; }
  uint v87 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v232)));
  *(__private u16*)((__private uchar*)own0 + min((v83 + 0xffff0020u), 30u)) = (ushort)v87;
  uint v89 = v51 + 1u;
  v76 = v89;
 end12:;
  uint v90;
  uint v92 = (uint)((int)v8 < (int)0u);
  if (v92 != 0u) {
    v90 = v76;
    goto end16;
  }
  uint v93 = v39 & v71;
  uint v94 = (uint)(v93 == 0u);
  if (v94 != 0u) {
    v90 = v76;
    goto end16;
  }
  uint v96 = v76 << 1u;
  uint v97 = v6 + v96;
  uint v99 = v8 << 1u;
  uint v100 = v75 + v99;
  uint v233 = v100 - 131072u;
  if (v233 >= places0_2) { record_trap(HERE, 131074u, 486u, 0u, (uint)(a0 + (ulong)v233)); return; }
  uint v101 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v233)));
  *(__private u16*)((__private uchar*)own0 + min((v97 + 0xffff0020u), 30u)) = (ushort)v101;
  uint v103 = v76 + 1u;
  v90 = v103;
 end16:;
  uint v104;
  uint v106 = (uint)((int)v8 < (int)0xffffffffu);
  if (v106 != 0u) {
    v104 = v90;
    goto end19;
  }
  uint v108 = v8 + 1u;
  uint v109 = (uint)((int)v108 < (int)s2);
  uint v110 = v109 & v71;
  uint v111 = (uint)(v110 == 0u);
  if (v111 != 0u) {
    v104 = v90;
    goto end19;
  }
  uint v113 = v90 << 1u;
  uint v114 = v6 + v113;
  uint v116 = v108 << 1u;
  uint v117 = v75 + v116;
  uint v234 = v117 - 131072u;
  if (v234 >= places0_2) { record_trap(HERE, 131074u, 541u, 0u, (uint)(a0 + (ulong)v234)); return; }
  uint v118 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v234)));
  *(__private u16*)((__private uchar*)own0 + min((v114 + 0xffff0020u), 30u)) = (ushort)v118;
  uint v120 = v90 + 1u;
  v104 = v120;
 end19:;
  uint v122 = (uint)((int)v10 > (int)0xfffffffeu);
  uint v124 = v10 + 1u;
  uint v125 = (uint)((int)v124 < (int)s3);
  uint v126 = v122 & v125;
  uint v127 = v124 * s2;
  uint v129 = v127 << 1u;
  uint v130 = 131072u + v129;
  uint v131;
  uint v133 = (uint)((int)v8 < (int)1u);
  if (v133 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v134 = (uint)((int)v8 > (int)s2);
  if (v134 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v135 = (uint)(v126 == 0u);
  if (v135 != 0u) {
    v131 = v104;
    goto end22;
  }
  uint v137 = v104 << 1u;
  uint v138 = v6 + v137;
  uint v140 = v16 << 1u;
  uint v141 = v130 + v140;
  uint v235 = v141 - 131072u;
  if (v235 >= places0_2) { record_trap(HERE, 131074u, 623u, 0u, (uint)(a0 + (ulong)v235)); return; }
  uint v142 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v235)));
  *(__private u16*)((__private uchar*)own0 + min((v138 + 0xffff0020u), 30u)) = (ushort)v142;
  uint v144 = v104 + 1u;
  v131 = v144;
 end22:;
  uint v145;
  uint v147 = (uint)((int)v8 < (int)0u);
  if (v147 != 0u) {
    v145 = v131;
    goto end26;
  }
  uint v148 = v39 & v126;
  uint v149 = (uint)(v148 == 0u);
  if (v149 != 0u) {
    v145 = v131;
    goto end26;
  }
  uint v151 = v131 << 1u;
  uint v152 = v6 + v151;
  uint v154 = v8 << 1u;
  uint v155 = v130 + v154;
  uint v236 = v155 - 131072u;
  if (v236 >= places0_2) { record_trap(HERE, 131074u, 670u, 0u, (uint)(a0 + (ulong)v236)); return; }
  uint v156 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v236)));
  *(__private u16*)((__private uchar*)own0 + min((v152 + 0xffff0020u), 30u)) = (ushort)v156;
  uint v158 = v131 + 1u;
  v145 = v158;
 end26:;
  uint v159;
  uint v161 = (uint)((int)v8 < (int)0xffffffffu);
  if (v161 != 0u) {
    v159 = v145;
    goto end29;
  }
  uint v163 = v8 + 1u;
  uint v164 = (uint)((int)v163 < (int)s2);
  uint v165 = v164 & v126;
  uint v166 = (uint)(v165 == 0u);
  if (v166 != 0u) {
    v159 = v145;
    goto end29;
  }
  uint v168 = v145 << 1u;
  uint v169 = v6 + v168;
  uint v171 = v163 << 1u;
  uint v172 = v130 + v171;
  uint v237 = v172 - 131072u;
  if (v237 >= places0_2) { record_trap(HERE, 131074u, 725u, 0u, (uint)(a0 + (ulong)v237)); return; }
  uint v173 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v237)));
  *(__private u16*)((__private uchar*)own0 + min((v169 + 0xffff0020u), 30u)) = (ushort)v173;
  uint v175 = v145 + 1u;
  v159 = v175;
 end29:;
  uint v177 = (uint)((int)v159 < (int)2u);
  if (v177 != 0u) {
    goto end33;
  }
  uint v180 = v6;
  uint v181 = 2u;
  uint v182 = 1u;
  for (;;) {
    uint v184 = v182 << 1u;
    uint v185 = v6 + v184;
    if ((ulong)v185 - 65504ul > 30ul) { record_trap(HERE, 131074u, 826u, 1u, (uint)(ulong)v185); return; }
    uint v186 = (uint)(once32((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v185 - 65504ul))));
    uint v188 = v186 & 65535u;
    uint v189;
    uint v190;
    uint v191 = v180;
    uint v192 = v181;
    for (;;) {
      if ((ulong)v191 - 65504ul > 30ul) { record_trap(HERE, 131074u, 854u, 1u, (uint)(ulong)v191); return; }
      uint v193 = (uint)(once32((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v191 - 65504ul))));
      uint v194 = (uint)(v193 <= v188);
      if (v194 != 0u) {
        v190 = v192;
        goto end37;
      }
      uint v196 = v191 + 2u;
      if ((ulong)v196 - 65504ul > 30ul) { record_trap(HERE, 131074u, 871u, 1u, (uint)(ulong)v196); return; }
      *(__private u16*)((__private uchar*)own0 + ((ulong)v196 - 65504ul)) = (ushort)v193;
      uint v198 = v191 + 0xfffffffeu;
      uint v200 = v192 + 0xffffffffu;
      uint v202 = (uint)((int)v200 > (int)1u);
      if (v202 != 0u) {
        v191 = v198;
        v192 = v200;
        continue;
      }
      break;
    }
    v189 = 0u;
    goto end36;
   end37:;
    uint v205 = v190 + 0xffffffffu;
    v189 = v205;
   end36:;
    uint v207 = v189 << 1u;
    uint v208 = v6 + v207;
    if ((ulong)v208 - 65504ul > 30ul) { record_trap(HERE, 131074u, 919u, 1u, (uint)(ulong)v208); return; }
    *(__private u16*)((__private uchar*)own0 + ((ulong)v208 - 65504ul)) = (ushort)v186;
    uint v210 = v180 + 2u;
    uint v212 = v181 + 1u;
    uint v214 = v182 + 1u;
    uint v215 = (uint)(v214 != v159);
    if (v215 != 0u) {
      v180 = v210;
      v181 = v212;
      v182 = v214;
      continue;
    }
    break;
  }
 end33:;
  uint v217 = v72 << 1u;
  uint v218 = 131072u + v217;
  uint v220 = v8 << 1u;
  uint v221 = v218 + v220;
  uint v223 = v159 & 510u;
  uint v224 = v6 + v223;
  uint v225 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + min((v224 + 0xffff0020u), 30u)));
  uint v228 = v221 - 131072u;
  if (v228 >= places1_2) { record_trap(HERE, 131074u, 775u, 0u, (uint)(a1 + (ulong)v228)); return; }
  *(__global u16*)(AT(__global, p1, (ulong)v228)) = (ushort)v225;
  uint v227 = v6 + 32u;
  g0 = v227;
}
