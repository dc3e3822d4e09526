#include "strategies/planning/streaming_table_4.hpp"

#include <cmath>

namespace atl {
namespace {

constexpr int kPoints = 50;

// Gbit/s as printed, by size, method and share.
constexpr double kPrintedBandwidth[3][5][5] = {{{86.8, 152.6, 184.2, 222.3, 569.0},
                                                {1.4, 6.2, 13.3, 23.3, 86.8},
                                                {1.4, 5.2, 9.1, 16.0, 28.1},
                                                {1.4, 4.3, 6.2, 9.1, 11.0},
                                                {0.4, 0.9, 1.7, 2.0, 3.0}},
                                               {{104.8, 222.3, 222.3, 268.3, 471.5},
                                                {1.7, 7.5, 16.0, 33.9, 104.8},
                                                {1.7, 5.2, 9.1, 13.3, 19.3},
                                                {1.7, 3.6, 5.2, 6.2, 7.5},
                                                {0.4, 0.9, 1.4, 1.4, 1.7}},
                                               {{184.2, 323.8, 390.7, 390.7, 471.5},
                                                {3.0, 11.0, 23.3, 49.4, 184.2},
                                                {2.4, 6.2, 9.1, 11.0, 19.3},
                                                {1.7, 3.6, 4.3, 5.2, 5.2},
                                                {0.5, 0.9, 1.1, 1.1, 1.4}}};

double gbits_at(int point) { return std::pow(10.0, -1.0 + 4.0 * point / 49.0); }
int point_of(double gbits) { return static_cast<int>(std::lround((std::log10(gbits) + 1.0) * 49.0 / 4.0)); }

}  // namespace

UtilisationQuestion table_4_question(std::uint32_t size, std::uint32_t method) {
  const Table4Size& model = kTable4Sizes.at(size);
  UtilisationQuestion question;
  question.pattern = method == 0 ? SyncPattern::every_step : method == 1 ? SyncPattern::whole_model : SyncPattern::streaming;
  question.layers = model.layers;
  question.step_seconds = model.step_seconds;
  question.parameters = model.parameters;
  question.bits_per_parameter = method == 4 ? kPaperEffectiveBits / 4 : kPaperEffectiveBits;
  question.inner_steps = method == 0 ? 1 : 100;
  question.fragments = model.layers / 3;
  question.overlap_steps = method >= 3 ? 1 : 0;
  return question;
}

Result<std::vector<Table4Cell>> streaming_table_4() {
  std::vector<Table4Cell> cells;
  for (std::uint32_t size = 0; size < kTable4Sizes.size(); ++size) {
    for (std::uint32_t method = 0; method < kTable4Methods.size(); ++method) {
      UtilisationQuestion question = table_4_question(size, method);
      int point = 0;  // the shares rise along a row, and so do the points
      for (std::uint32_t share = 0; share < kTable4Shares.size(); ++share) {
        for (; point < kPoints; ++point) {
          question.link_bits_per_second = gbits_at(point) * 1e9;
          ATOLL_ASSIGN(const double reached, compute_utilisation(question));
          if (reached >= kTable4Shares[share]) {
            break;
          }
        }
        const double printed = kPrintedBandwidth[size][method][share];
        cells.push_back({size, method, share, printed, gbits_at(point), point - point_of(printed)});
      }
    }
  }
  return cells;
}

}  // namespace atl
