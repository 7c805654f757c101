#include "golden/golden_case.h"

#include <string>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/golden_file.h"

namespace nsa::test {
namespace {

TEST(GoldenCase, ReadsTheSettingsOfAnOperator) {
  const GoldenCase golden = read_golden_case(golden_path("dqk_ne_dv_mlpflat_rope"));
  EXPECT_EQ(golden.name, "dqk_ne_dv_mlpflat_rope");
  EXPECT_EQ(golden.head_dim, 24);
  EXPECT_EQ(golden.v_dim, 16);
  EXPECT_EQ(golden.tokens(), 84);
  EXPECT_EQ(golden.geometry.rate, 4);
  EXPECT_EQ(golden.geometry.compress_block(), 8);
  EXPECT_EQ(golden.geometry.select_block, 16);
  EXPECT_EQ(golden.phi, Phi::kMlpFlat);
  EXPECT_EQ(golden.compress_rope, CompressRope::kAfter);
  EXPECT_EQ(golden.position, CompressPosition::kStart);
  EXPECT_EQ(golden.rope.rotary_dim, 16);
  EXPECT_FALSE(golden.is_layer());
  EXPECT_FALSE(golden.bypass);
}

TEST(GoldenCase, ReadsBypassTiesAndLayers) {
  EXPECT_TRUE(read_golden_case(golden_path("rate1_bypass")).bypass);
  EXPECT_FALSE(read_golden_case(golden_path("rate_sweep_1")).bypass);
  EXPECT_TRUE(read_golden_case(golden_path("ties_dup")).ties);
  EXPECT_EQ(read_golden_case(golden_path("layer_full")).model_dim, 20);
  EXPECT_FALSE(read_golden_case(golden_path("opt_per_doc_rates")).one_rate);
}

TEST(GoldenCase, RefusesWhatTheOpsCannotRunInOneSentence) {
  const std::pair<const char*, const char*> alterations[] = {
      {R"("format":"nsa-golden-1")", R"("format":"nsa-golden-2")"},
      {R"("format":"nsa-golden-1",)", ""},
      {R"("config":"{)", R"("config":"[{)"},
      {R"(\"Hq\": 4, )", ""},
      {R"(\"Hq\": 4)", R"(\"Hq\": 3)"},
      {R"(\"Hq\": 4)", R"(\"Hq\": 8)"},
      {R"(\"dqk\": 16)", R"(\"dqk\": -16)"},
      {R"(\"dqk\": 16)", R"(\"dqk\": 16.0)"},
      {R"(\"dv\": 8)", R"(\"dv\": \"8\")"},
      {R"(\"dm\": 0)", R"(\"dm\": 12)"},
      {R"(\"lp\": 8)", R"(\"lp\": 6)"},
      {R"(\"n\": 4)", R"(\"n\": 2)"},
      {R"(\"n_local\": 2)", R"(\"n_local\": 0)"},
      {R"(\"w\": 12)", R"(\"w\": 0)"},
      {R"(\"phi\": \"pool_mlp\")", R"(\"phi\": \"pool\")"},
      {R"(\"phi\": \"pool_mlp\")", R"(\"phi\": \"mlp_flat\")"},
      {R"(\"rope_dim\": 16)", R"(\"rope_dim\": 15)"},
      {R"(\"rope_dim\": 16)", R"(\"rope_dim\": 18)"},
      {R"(\"cmp_rope\": \"after\")", R"(\"cmp_rope\": \"later\")"},
      {R"(\"cmp_pos\": \"center\")", R"(\"cmp_pos\": \"middle\")"},
      {R"(\"scale\": 0.25)", R"(\"scale\": 0)"},
      {R"(\"rate1_bypass\": true)", R"(\"rate1_bypass\": 1)"},
      {R"(\"rates\": [[8, 4], )", R"(\"rates\": [)"},
      {R"(\"rates\": [[8, 4])", R"(\"rates\": [[8, 3])"},
      {R"(\"rates\": [[8, 4])", R"(\"rates\": [[8, 1])"},
      {R"(\"cu_seqlens\": [0, 1, 6)", R"(\"cu_seqlens\": [0, 6, 1)"},
      {R"(\"cu_seqlens\": [0, 1, 6)", R"(\"cu_seqlens\": [0, 1, 7)"},
      {R"("in.q")", R"("in.Q")"},
      {R"("grad.phi_k.theta")", R"("grad.phi_k.thetb")"},
      {R"("mid.kt_raw")", R"("mid.kt_rax")"},
      {R"("grad.k_cmp":{"dtype":"F32","shape":[94,2,16])",
       R"("grad.k_cmp":{"dtype":"F32","shape":[2,94,16])"}};
  for (const auto& [from, to] : alterations) {
    GoldenCopy copy("packed_docs_rope");
    copy.replace(from, to);
    try {
      read_golden_case(copy.path());
      ADD_FAILURE() << "accepted " << to;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ExitCode::kData) << what;
      EXPECT_NE(what.find("packed_docs_rope"), std::string::npos) << what;
      EXPECT_EQ(what.find(".cpp"), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

TEST(GoldenCase, ListsThePartsOfTheProjectionInOrder) {
  std::string names;
  std::int64_t columns = 0;
  const GoldenCase golden = read_golden_case(golden_path("gqa4"));
  for (const ProjectionPart& part : projection_parts(golden)) {
    names += part.name + " ";
    columns += part.width();
  }
  EXPECT_EQ(names, "q k_cmp v_cmp k_slc v_slc k_win v_win gate_logits ");
  EXPECT_EQ(columns, 8 * 8 + 6 * 2 * 8 + 3 * 8);
}

}  // namespace
}  // namespace nsa::test
