// SPDX-License-Identifier: Apache-2.0
// clang's answer about a text in OpenCL C: what is left of it once the preprocessor has run, and what is declared in
// it. It stands in a shared object with one plain C function, because clang costs processes that never see OpenCL C
// time and memory. Reads no file: the header that clang needs for itself is part of the object.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// Of a parameter, by its canonical type: behind every typedef.
enum hpvm_opencl_kind {
  HPVM_OPENCL_GLOBAL = 0,   // A pointer to global or constant memory.
  HPVM_OPENCL_LOCAL = 1,    // A pointer to local memory.
  HPVM_OPENCL_INTEGER = 2,  // `bits` of them.
  HPVM_OPENCL_FLOAT = 3,    // `bits` of them.
  HPVM_OPENCL_VECTOR = 4,   // float4 and its kin.
  HPVM_OPENCL_RECORD = 5,   // A struct or union by value.
  HPVM_OPENCL_OPAQUE = 6,   // An image, sampler, event, queue or pipe.
  HPVM_OPENCL_OTHER = 7,    // Whatever else, private pointers among it.
};

enum hpvm_opencl_space { HPVM_OPENCL_IN_PRIVATE = 0, HPVM_OPENCL_IN_LOCAL = 1, HPVM_OPENCL_IN_CONSTANT = 2 };

struct hpvm_opencl_place {
  uint32_t line, column;  // Of the tenant's text, from 1; 0 where there is none.
};

struct hpvm_opencl_parameter {
  enum hpvm_opencl_kind kind;
  uint32_t bits;
  int is_const;      // Pointers: what they point to.
  const char* text;  // The type as written and, where it differs, as it is: "color (aka 'float4')".
  struct hpvm_opencl_place place;
};

struct hpvm_opencl_variable {
  enum hpvm_opencl_space space;
  uint64_t bytes;
  const char* name;
  const char* function;  // Empty outside of functions.
  struct hpvm_opencl_place place;
};

// Called in the order of the text. Strings live as long as the call; none is null.
struct hpvm_opencl_listener {
  void* context;
  void (*fault)(void* context, struct hpvm_opencl_place place, const char* message);
  // Followed by the kernel's parameters. `group`: of reqd_work_group_size, or zeros.
  void (*kernel)(void* context, const char* name, struct hpvm_opencl_place place, const uint32_t group[3]);
  void (*parameter)(void* context, const struct hpvm_opencl_parameter* parameter);
  // Of static size, with a place in memory.
  void (*variable)(void* context, const struct hpvm_opencl_variable* variable);
  // The text without conditions and macros. Lines keep their numbers by line markers.
  void (*text)(void* context, const char* bytes, size_t count);
};

struct hpvm_opencl_request {
  const char* text;  // Ends in a zero byte that `text_bytes` does not count; no other.
  size_t text_bytes;
  const char* const* arguments;  // Of clang -cc1: -D..., -cl-...
  size_t argument_count;
};

typedef void (*hpvm_opencl_describe_function)(const struct hpvm_opencl_request* request,
                                              const struct hpvm_opencl_listener* listener);
__attribute__((visibility("default"))) void hpvm_opencl_describe(const struct hpvm_opencl_request* request,
                                                                 const struct hpvm_opencl_listener* listener);
}

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_
