#include "cli/views/table.hpp"

#include <algorithm>
#include <numeric>

#include "cli/views/printable.hpp"
#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr std::size_t kGap = 2;

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

std::vector<std::size_t> Table::widths(std::size_t columns) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_of(columns_[c].heading);
    for (const auto& row : rows_) {
      width = std::max(width, columns_of(row[c].text));
    }
    widths.push_back(width);
  }
  std::size_t total = std::accumulate(widths.begin(), widths.end(), std::size_t{0}) + kGap * (widths.size() - 1);
  while (total > columns) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const bool can_give = columns_[c].flexible && widths[c] > columns_of(columns_[c].heading);
      if (can_give && (widest == columns_.size() || widths[c] > widths[widest])) {
        widest = c;
      }
    }
    if (widest == columns_.size()) {
      break;
    }
    --widths[widest];
    --total;
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
