// Charts: lines over axes, in braille characters for a terminal and as SVG for a file.
// Threads: pure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/views/parts/terminal.hpp"

namespace atl {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by x
};

struct Chart {
  std::string x_name;        // "inner steps"
  std::string y_name;        // "validation loss"
  bool logarithmic = false;  // the y axis; points that are not positive are left out then
  std::vector<ChartLine> lines;
};

// Round numbers that span what lies between `least` and `most`: at most `count` of them.
std::vector<double> round_ticks(double least, double most, std::size_t count);

// As wide as the terminal, `rows` high with its axes. Every line ends with a letter, and below the letters are named; on a terminal with
// colours each line has one. Empty where no line has two points.
std::string braille_chart(const Chart& chart, const Terminal& terminal, std::size_t rows = 20);

// A document of its own, 800 × 450, readable on light and dark. Empty as above.
std::string svg_chart(const Chart& chart);

}  // namespace atl
