#include "cli/views/parts/table.hpp"

#include <algorithm>
#include <numeric>

#include "cli/views/parts/printable.hpp"
#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kUseful = 20;  // of a flexible column: less says too little of a name or a reason

std::string cut(const std::string& text, std::size_t width) {
  if (columns_of(text) <= width) {
    return text;
  }
  return width == 0 ? std::string() : std::string(first_columns(text, width - 1)) + "…";
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<Cell> row) {
  ATOLL_CHECK(row.size() == columns_.size(), "a row has one cell for each column");
  for (Cell& cell : row) {
    cell.text = printable(cell.text, 1000);
  }
  rows_.push_back(std::move(row));
}

namespace {

// Takes from the flexible columns, the widest first, until all fit or none is wider than its floor.
void narrow(std::vector<std::size_t>& widths, const std::vector<std::size_t>& floors, std::size_t columns) {
  std::size_t total = kGap * (widths.size() - 1) + std::accumulate(widths.begin(), widths.end(), std::size_t{0});
  while (total > columns) {
    std::size_t widest = widths.size();
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (widths[c] > floors[c] && (widest == widths.size() || widths[c] > widths[widest])) {
        widest = c;
      }
    }
    if (widest == widths.size()) {
      return;
    }
    --widths[widest];
    --total;
  }
}

}  // namespace

std::vector<std::size_t> Table::widths(std::size_t columns) const {
  std::vector<std::size_t> natural;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_of(columns_[c].heading);
    for (const auto& row : rows_) {
      width = std::max(width, columns_of(row[c].text));
    }
    natural.push_back(width);
  }
  std::vector<std::size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  std::vector<std::size_t> width;
  const auto narrow_to = [&](std::size_t useful) {
    std::vector<std::size_t> floors;
    width.clear();
    for (const std::size_t c : shown) {
      width.push_back(natural[c]);
      const std::size_t least = std::max(columns_of(columns_[c].heading), useful);
      floors.push_back(columns_[c].flexible ? std::min(natural[c], least) : natural[c]);
    }
    narrow(width, floors, columns);
    return std::accumulate(width.begin(), width.end(), kGap * (width.size() - 1)) <= columns;
  };
  while (!narrow_to(kUseful)) {
    const auto least_needed = [&](std::size_t a, std::size_t b) {  // those that are always shown come last
      return static_cast<unsigned>(columns_[a].left_out - 1) < static_cast<unsigned>(columns_[b].left_out - 1);
    };
    const auto next = std::min_element(shown.begin(), shown.end(), least_needed);
    if (columns_[*next].left_out == 0) {
      narrow_to(0);
      break;
    }
    shown.erase(next);
  }
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    widths[shown[i]] = width[i];
  }
  return widths;
}

std::string Table::text(const Terminal& terminal) const {
  const std::vector<std::size_t> width = widths(terminal.columns);
  std::string all;
  const auto line = [&](const auto& cell_of) {
    std::string row;
    std::size_t pending = 0;  // spaces not yet written, so that no line ends with them
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (width[c] == 0) {
        continue;
      }
      const Cell cell = cell_of(c);
      const std::string shown = cut(cell.text, width[c]);
      const std::size_t padding = width[c] - columns_of(shown);
      pending += columns_[c].right ? padding : 0;
      if (!shown.empty()) {
        row += std::string(pending, ' ') + styled(shown, cell.style, terminal);
        pending = 0;
      }
      pending += (columns_[c].right ? 0 : padding) + kGap;
    }
    all += row + "\n";
  };
  line([&](std::size_t c) { return Cell{columns_[c].heading, Style::dim}; });
  for (const auto& row : rows_) {
    line([&](std::size_t c) { return row[c]; });
  }
  return all;
}

}  // namespace atl
