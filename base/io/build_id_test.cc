// SPDX-License-Identifier: Apache-2.0
#include "base/io/build_id.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>

namespace hpvm {
namespace {

// Finds the build id in the file on disk by searching for the note: a name of 4 bytes, type 3.
std::string NoteOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string tail("\3\0\0\0GNU\0", 8);
  for (size_t at = bytes.find(tail); at != std::string::npos; at = bytes.find(tail, at + 1)) {
    const auto size = static_cast<uint8_t>(bytes[at - 4]);
    if (bytes[at - 8] == 4 && size >= 8) {
      return bytes.substr(at + tail.size(), size);
    }
  }
  return "";
}

// The program comes first, then its libraries, each with the id found in its file; the kernel's object is absent.
TEST(BuildIdTest, ReadsTheNotesOfWhatIsMapped) {
  const std::vector<MappedObject> objects = MappedObjects();
  ASSERT_GE(objects.size(), 2u);
  EXPECT_EQ(objects[0].path, "");
  EXPECT_TRUE(objects[0].has_build_id);
  bool has_libc = false;
  for (const MappedObject& object : objects) {
    const std::string path = object.path.empty() ? "/proc/self/exe" : object.path;
    EXPECT_EQ(path.find("vdso"), std::string::npos);
    ASSERT_FALSE(object.id.empty()) << path;
    if (object.has_build_id) {
      EXPECT_EQ(std::string(object.id.begin(), object.id.end()), NoteOf(path)) << path;
    } else {
      EXPECT_EQ(object.id.size(), sizeof(Sha256)) << path;
    }
    has_libc |= path.find("libc.so") != std::string::npos;
  }
  EXPECT_TRUE(has_libc);
}

// A change of one bit of any object's id makes another build, and so does a missing object. Addresses do not matter.
TEST(BuildIdTest, EveryObjectCounts) {
  std::vector<MappedObject> objects = MappedObjects();
  const Sha256 build = BuildIdentityOf(objects);
  EXPECT_EQ(BuildIdentityOf(MappedObjects()), build);
  for (MappedObject& object : objects) {
    object.id.back() ^= 1;
    EXPECT_NE(BuildIdentityOf(objects), build) << object.path;
    object.id.back() ^= 1;
    object.path += "x";
  }
  EXPECT_EQ(BuildIdentityOf(objects), build);
  objects.pop_back();
  EXPECT_NE(BuildIdentityOf(objects), build);
}

}  // namespace
}  // namespace hpvm
