#include "train/progress.h"

#include <string>

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(ProgressLine, SaysWhatTheManualShows) {
  const TrainRow row{.step = 1200,
                     .tokens = 0,
                     .epoch = 0,
                     .loss = 3.4127,
                     .grad_norm = 0.31,
                     .lr = 5.9e-4,
                     .tok_s = 468123,
                     .mem_gib = 62.1,
                     .data_wait = 0.003,
                     .nsa = NsaRow{},
                     .skipped = 0};
  EXPECT_EQ(
      progress_line({.row = row, .steps = 20000, .val_loss = 3.4502, .seconds_left = 9660.0}),
      "step   1200/20000  loss 3.4127  val 3.4502  gnorm 0.31  lr 5.9e-04  468k tok/s  62.10 GiB  "
      "data 0.3%  nsa r16 n16 w512  eta 2h41");
}

TEST(ProgressLine, SaysTheUtilisationWhereItIsKnown) {
  TrainRow row;
  row.mfu = 0.4925;
  const std::string line =
      progress_line({.row = row, .steps = 10, .val_loss = {}, .seconds_left = {}});
  EXPECT_NE(line.find("  mfu 49.2%"), std::string::npos) << line;
}

TEST(ProgressLine, LeavesOutWhatThereIsNot) {
  const std::string line =
      progress_line({.row = {}, .steps = 10, .val_loss = {}, .seconds_left = {}});
  EXPECT_EQ(line.find("val"), std::string::npos);
  EXPECT_EQ(line.find("nsa"), std::string::npos);
  EXPECT_EQ(line.find("mfu"), std::string::npos);
  EXPECT_EQ(line.find("eta"), std::string::npos);
}

TEST(DurationText, DurationsHaveTheirLargestUnits) {
  EXPECT_EQ(duration_text(9.4), "9s");
  EXPECT_EQ(duration_text(725), "12m05");
  EXPECT_EQ(duration_text(9660), "2h41");
}

}  // namespace
}  // namespace nsa
