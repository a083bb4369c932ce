// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/testing/wrap_kernels.h"

namespace hpvm::ir::testing {
namespace {

constexpr uint64_t kWords = kWrapInstances * 6 + 16;

// `type` is the address type. The body can use %id, %w (zero, which no compiler can know, times 16) and %to, the
// address of the instance's word of "r".
std::string Module(const std::string& type, const std::string& body) {
  const std::string to_type = type == "i32" ? "%to: i32 = add.i32 %r, %word\n"
                                            : "%far: i64 = extend_u.i32 %word\n%to: i64 = add.i64 %r, %far\n";
  return "module \"wrap\"" + std::string(type == "i64" ? " memory64" : "") +
         "\nparam buffer inout \"r\"\nparam buffer in \"x\"\nentry f0\nfunc f0 \"wrap\" (%r: " + type +
         ", %x: " + type +
         ") -> () {\n%zero: i32 = const.i32 0\n%three: i32 = const.i32 3\n%four: i32 = const.i32 4\n"
         "%id: i32 = instance_id.i32 %zero\n%word: i32 = shl.i32 %id, %three\n" +
         to_type + "%seen: i32 = load.i32 flat %x\n%w: i32 = shl.i32 %seen, %four\n%size: i32 = const.i32 48\n" + body +
         "\nreturn ()\n}\n";
}

// %a and %b, both derived from %t, which is `base` plus the record plus %w: two bytes of a record, 8 apart, as sums.
std::string Fields(const std::string& base) {
  return "%at: i32 = mul.i32 %id, %size\n%record: i32 = add.i32 " + base +
         ", %at\n%t: i32 = add.i32 %record, %w\n%upper: i32 = const.i32 88\n%lower: i32 = const.i32 80\n"
         "%a: i32 = add.i32 %t, %upper\n%b: i32 = add.i32 %t, %lower\n";
}

std::string SumOf(const std::string& type, const std::string& width) {
  return "%va: " + type + " = load." + type + width + " flat %a\n%vb: " + type + " = load." + type + width +
         " flat %b\n%sum: " + type + " = add." + type + " %va, %vb\nstore." + type + " flat %to, %sum";
}

}  // namespace

std::vector<WrapKernel> WrapKernels() {
  // A constant from the author, added inside and subtracted outside.
  const std::string apart =
      "%more: i32 = const.i32 16\n%later: i32 = add.i32 %id, %more\n%at: i32 = mul.i32 %later, %size\n"
      "%t: i32 = add.i32 %at, %w\n%upper: i32 = const.i32 680\n%lower: i32 = const.i32 688\n"
      "%ta: i32 = sub.i32 %t, %upper\n%tb: i32 = sub.i32 %t, %lower\n";
  return {
      {"words", Module("i32", Fields("%x") + SumOf("i64", ""))},
      {"bytes", Module("i32", Fields("%x") + SumOf("i32", " w1"))},
      {"stores", Module("i32", Fields("%r") + "%value: i64 = const.i64 7\n%own: i64 = extend_u.i32 %id\n"
                                              "store.i64 flat %a, %value\nstore.i64 flat %b, %own")},
      {"own_constants",
       Module("i32", apart + "%a: i32 = add.i32 %x, %ta\n%b: i32 = add.i32 %x, %tb\n" + SumOf("i64", ""))},
      {"extended", Module("i64", apart +
                                     "%wa: i64 = extend_u.i32 %ta\n%wb: i64 = extend_u.i32 %tb\n"
                                     "%a: i64 = add.i64 %x, %wa\n%b: i64 = add.i64 %x, %wb\n" +
                                     SumOf("i64", ""))},
  };
}

WrapBuffers::WrapBuffers() : r(kWords), x(kWords) {
  for (uint64_t i = 0; i < kWords; ++i) {
    x[i] = i;
  }
}

Launch WrapBuffers::On() {
  Launch launch;
  launch.extent = {kWrapInstances, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), kWords * 8, 0},
                      {reinterpret_cast<uint8_t*>(x.data()), kWords * 8, 0}};
  return launch;
}

}  // namespace hpvm::ir::testing
