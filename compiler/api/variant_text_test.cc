// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/variant_text.h"

#include <gtest/gtest.h>

namespace hpvm {
namespace {

TEST(VariantTextTest, NamesWhatRunsOnACpu) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kCpuImage;
  artifact.variants = {
      {.unit = CpuVariant::Unit::kTile, .lanes = 16, .columns = 3, .rows = 8, .needs_proof = true},
      {.unit = CpuVariant::Unit::kGroup, .lanes = 8},
      {.unit = CpuVariant::Unit::kTile, .needs_proof = true},
  };
  EXPECT_EQ(VariantText(artifact, 0), "tiles of 48 x 8, unchecked");
  EXPECT_EQ(VariantText(artifact, 1), "groups, 8 lanes");
  EXPECT_EQ(VariantText(artifact, 2), "one at a time, unchecked");
  EXPECT_EQ(VariantText(artifact, 3), "one at a time");
  EXPECT_EQ(VariantText(artifact, 4), "");
  EXPECT_EQ(VariantText(artifact, 0xff), "");
}

TEST(VariantTextTest, NamesWhatRunsOnAGpu) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kVulkan;
  artifact.gpu.variants.resize(2);
  artifact.gpu.variants[1].tile = {4, 2, 1};
  artifact.gpu.variants[1].needs_proof = true;
  EXPECT_EQ(VariantText(artifact, 0), "one instance per work item");
  EXPECT_EQ(VariantText(artifact, 1), "4 x 2 x 1 instances per work item, unchecked");
  EXPECT_EQ(VariantText(artifact, 2), "");
  artifact.gpu.is_native = true;
  EXPECT_EQ(VariantText(artifact, 0), "as written");
}

TEST(VariantTextTest, StaysShort) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kOpenCl;
  artifact.gpu.variants.resize(1);
  artifact.gpu.variants[0].tile = {0xffffffff, 0xffffffff, 0xffffffff};
  artifact.gpu.variants[0].needs_proof = artifact.gpu.variants[0].needs_words = true;
  EXPECT_LE(VariantText(artifact, 0).size(), kVariantTextBytesMax);
  artifact.kind = ArtifactKind::kCpuImage;
  artifact.variants = {
      {.unit = CpuVariant::Unit::kTile, .lanes = 0xffffffff, .columns = 1, .rows = 0xffffffff, .needs_proof = true}};
  EXPECT_LE(VariantText(artifact, 0).size(), kVariantTextBytesMax);
}

}  // namespace
}  // namespace hpvm
