// Table: aligned columns that fit a terminal.
//
// Columns are as wide as their widest cell, two spaces apart. Where a row would not fit, flexible columns give way, the widest first, down
// to 20 characters; then columns are left out, the least needed first; then flexible columns give way down to their heading. A cut cell
// ends with "…". Cells are made printable: no peer can move the cursor. Threads: plain values.
#pragma once

#include <string>
#include <vector>

#include "cli/views/parts/terminal.hpp"

namespace atl {

struct Column {
  std::string heading;
  bool right = false;     // aligned to the right, for numbers
  bool flexible = false;  // may be cut
  int left_out = 0;       // 1: the first that is left out where the terminal is narrow, then 2, 3…; 0: always shown
};

struct Cell {
  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);
  // One cell for each column.
  void add(std::vector<Cell> row);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // Heading and rows, each line ended, no spaces at line ends.
  [[nodiscard]] std::string text(const Terminal& terminal) const;

 private:
  // How wide each column is shown; 0 where it is left out.
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace atl
