// Table: aligned columns that fit a terminal.
//
// Columns are as wide as their widest cell, two spaces apart. Where a row would not fit, flexible columns give way, the
// widest first, down to their heading; a cut cell ends with "…". Cells are made printable: no peer can move the cursor.
// Threads: plain values.
#pragma once

#include <string>
#include <vector>

#include "cli/views/terminal.hpp"

namespace atl {

struct Column {
  std::string heading;
  bool right = false;     // aligned to the right, for numbers
  bool flexible = false;  // may be cut
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
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace atl
