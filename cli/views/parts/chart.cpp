#include "cli/views/parts/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

constexpr std::array kTerminalColours = {"36", "33", "35", "32", "34", "31"};
constexpr std::array kSvgColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

// What the axes span. y is the logarithm where the chart is logarithmic.
struct Frame {
  double x0 = std::numeric_limits<double>::infinity();
  double x1 = -std::numeric_limits<double>::infinity();
  double y0 = std::numeric_limits<double>::infinity();
  double y1 = -std::numeric_limits<double>::infinity();
  bool logarithmic = false;

  [[nodiscard]] bool shows(double y) const { return std::isfinite(y) && (!logarithmic || y > 0); }
  [[nodiscard]] double height(double y) const { return logarithmic ? std::log10(y) : y; }
  [[nodiscard]] double across(double x) const { return (x - x0) / (x1 - x0); }
  [[nodiscard]] double up(double y) const { return (height(y) - y0) / (y1 - y0); }
};

std::optional<Frame> frame_of(const Chart& chart) {
  Frame frame;
  frame.logarithmic = chart.logarithmic;
  bool drawn = false;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      if (std::isfinite(x) && frame.shows(y)) {
        frame.x0 = std::min(frame.x0, x);
        frame.x1 = std::max(frame.x1, x);
        frame.y0 = std::min(frame.y0, frame.height(y));
        frame.y1 = std::max(frame.y1, frame.height(y));
      }
    }
    drawn = drawn || line.points.size() > 1;
  }
  if (!drawn || !(frame.x1 > frame.x0)) {
    return std::nullopt;
  }
  const double margin = frame.y1 > frame.y0 ? (frame.y1 - frame.y0) * 0.04 : std::max(std::abs(frame.y0) * 0.1, 0.1);
  frame.y0 -= margin;
  frame.y1 += margin;
  return frame;
}

std::vector<double> y_ticks(const Frame& frame, std::size_t count) {
  if (!frame.logarithmic) {
    return round_ticks(frame.y0, frame.y1, count);
  }
  std::vector<double> ticks;  // 1, 2, 5, 10, … as far as there is room, else evenly
  for (double decade = std::floor(frame.y0); decade <= frame.y1; ++decade) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double at = std::log10(digit) + decade;
      if (at >= frame.y0 && at <= frame.y1) {
        ticks.push_back(std::pow(10.0, at));
      }
    }
  }
  if (ticks.size() >= 3) {
    return ticks;
  }
  return round_ticks(std::pow(10.0, frame.y0), std::pow(10.0, frame.y1), count);
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10'000) {
    return count_text(value);
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

// Dots of 2 × 4 in each character; of each character the line that it shows.
class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows) : columns_(columns), rows_(rows), dots_(columns * rows), owner_(columns * rows) {}

  void line(double x0, double y0, double x1, double y1, std::size_t owner) {
    const double far = std::max(std::abs(x1 - x0) * static_cast<double>(columns_ * 2), std::abs(y1 - y0) * static_cast<double>(rows_ * 4));
    const auto steps = static_cast<std::size_t>(std::clamp(std::ceil(far), 1.0, 10'000.0));
    for (std::size_t i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(steps);
      dot(x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, owner);
    }
  }
  [[nodiscard]] std::pair<std::size_t, std::size_t> place(double x, double y) const {
    const auto column = static_cast<std::size_t>(std::clamp(x, 0.0, 0.9999) * static_cast<double>(columns_));
    const auto row = static_cast<std::size_t>((1 - std::clamp(y, 0.0001, 1.0)) * static_cast<double>(rows_));
    return {column, std::min(row, rows_ - 1)};
  }
  [[nodiscard]] std::string cell(std::size_t column, std::size_t row, const Terminal& terminal) const {
    const std::uint8_t dots = dots_[row * columns_ + column];
    if (dots == 0) {
      return " ";
    }
    const unsigned code = 0x2800U + dots;
    const std::string text = {static_cast<char>(0xE0U | (code >> 12U)), static_cast<char>(0x80U | ((code >> 6U) & 0x3FU)),
                              static_cast<char>(0x80U | (code & 0x3FU))};
    return coloured(text, owner_[row * columns_ + column], terminal);
  }
  static std::string coloured(const std::string& text, std::size_t owner, const Terminal& terminal) {
    return terminal.colour ? std::string("\x1b[") + kTerminalColours[owner % kTerminalColours.size()] + "m" + text + "\x1b[0m" : text;
  }

 private:
  void dot(double x, double y, std::size_t owner) {
    static constexpr std::uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const auto across = static_cast<std::size_t>(std::clamp(x, 0.0, 0.99999) * static_cast<double>(columns_ * 2));
    const auto down = std::min(static_cast<std::size_t>((1 - std::clamp(y, 0.0, 1.0)) * static_cast<double>(rows_ * 4)), rows_ * 4 - 1);
    dots_[down / 4 * columns_ + across / 2] |= kBits[down % 4][across % 2];
    owner_[down / 4 * columns_ + across / 2] = static_cast<std::uint8_t>(owner);
  }

  std::size_t columns_;
  std::size_t rows_;
  std::vector<std::uint8_t> dots_;
  std::vector<std::uint8_t> owner_;
};

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width > columns_of(text) ? width - columns_of(text) : 0, ' ') + text;
}

// "      0           500          1000": each number below its place, none over another.
std::string x_labels(const Frame& frame, std::size_t margin, std::size_t columns) {
  std::string labels(margin + columns, ' ');
  std::size_t free = 0;
  for (const double tick : round_ticks(frame.x0, frame.x1, columns / 12 + 1)) {
    const std::string text = tick_text(tick);
    const auto at = margin + static_cast<std::size_t>(frame.across(tick) * static_cast<double>(columns - 1));
    const std::size_t begin =
        std::min(at > text.size() / 2 ? at - text.size() / 2 : 0, labels.size() - std::min(labels.size(), text.size()));
    if (begin >= free) {
      labels.replace(begin, text.size(), text);
      free = begin + text.size() + 1;
    }
  }
  labels.erase(labels.find_last_not_of(' ') + 1);
  return labels;
}

void draw_lines(const Chart& chart, const Frame& frame, Canvas& canvas) {
  for (std::size_t number = chart.lines.size(); number-- > 0;) {  // the first line over the others
    const std::pair<double, double>* before = nullptr;
    for (const auto& point : chart.lines[number].points) {
      if (!frame.shows(point.second)) {
        continue;
      }
      if (before != nullptr) {
        canvas.line(frame.across(before->first), frame.up(before->second), frame.across(point.first), frame.up(point.second), number);
      }
      before = &point;
    }
  }
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

std::string format(const char* pattern, double a, double b) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), pattern, a, b);
  return text.data();
}

}  // namespace

std::vector<double> round_ticks(double least, double most, std::size_t count) {
  std::vector<double> ticks;
  if (!(most > least) || !std::isfinite(most - least) || count == 0) {
    return ticks;
  }
  const double rough = (most - least) / static_cast<double>(count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5.0, 2.0, 1.0}) {
    step = rough <= digit * power ? digit * power : step;
  }
  for (double tick = std::ceil(least / step) * step; tick <= most + step * 1e-9 && ticks.size() <= count; tick += step) {
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0.0 : tick);
  }
  return ticks;
}

std::string braille_chart(const Chart& chart, const Terminal& terminal, std::size_t rows) {
  const std::optional<Frame> frame = frame_of(chart);
  if (!frame) {
    return {};
  }
  std::vector<std::pair<std::size_t, std::string>> labels;  // row, text
  std::size_t margin = 4;
  const std::size_t high = std::max<std::size_t>(rows, 8) - 3;
  for (const double tick : y_ticks(*frame, high / 3)) {
    labels.emplace_back(std::min(static_cast<std::size_t>((1 - frame->up(tick)) * static_cast<double>(high)), high - 1), tick_text(tick));
    margin = std::max(margin, columns_of(labels.back().second));
  }
  const std::size_t columns = std::max<std::size_t>(terminal.columns_or(100), 30) - margin - 4;
  Canvas canvas(columns, high);
  draw_lines(chart, *frame, canvas);
  std::string text = chart.y_name + (chart.logarithmic ? ", logarithmic" : "") + "\n";
  for (std::size_t row = 0; row < high; ++row) {
    const auto label = std::ranges::find(labels, row, &std::pair<std::size_t, std::string>::first);
    text += padded(label == labels.end() ? "" : label->second, margin) + (label == labels.end() ? " │" : " ┤");
    std::string line;
    for (std::size_t column = 0; column < columns; ++column) {
      std::string cell = canvas.cell(column, row, terminal);
      for (std::size_t number = 0; number < chart.lines.size() && number < 26 && chart.lines.size() > 1; ++number) {
        const auto& points = chart.lines[number].points;
        if (!points.empty() &&
            canvas.place(frame->across(points.back().first), frame->up(points.back().second)) == std::pair(column, row)) {
          cell = Canvas::coloured(std::string(1, static_cast<char>('a' + number)), number, terminal);
        }
      }
      line += cell;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  std::string axis;
  for (std::size_t column = 0; column < columns; ++column) {
    axis += "─";
  }
  text += std::string(margin, ' ') + " └" + axis + "\n" + x_labels(*frame, margin + 2, columns) + "  " + chart.x_name + "\n";
  for (std::size_t number = 0; number < chart.lines.size() && chart.lines.size() > 1; ++number) {
    text += Canvas::coloured(std::string(1, static_cast<char>('a' + number % 26)), number, terminal) + "  " +
            printable(chart.lines[number].name) + "\n";
  }
  return text;
}

std::string svg_chart(const Chart& chart) {
  const std::optional<Frame> frame = frame_of(chart);
  if (!frame) {
    return {};
  }
  constexpr double kLeft = 70, kTop = 30, kWide = 710, kHigh = 350;
  const auto x = [&](double value) { return kLeft + frame->across(value) * kWide; };
  const auto y = [&](double value) { return kTop + (1 - frame->up(value)) * kHigh; };
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 " + std::to_string(430 + 20 * chart.lines.size()) +
                    "\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\n<style>text{fill:#333}line{stroke:#ccc}rect{fill:#fff}"
                    "@media(prefers-color-scheme:dark){text{fill:#ddd}line{stroke:#444}rect{fill:#181c20}}</style>\n<rect width=\"100%\" "
                    "height=\"100%\"/>\n";
  for (const double tick : y_ticks(*frame, 8)) {
    svg += format("<line x1=\"70\" x2=\"780\" y1=\"%.1f\" y2=\"%.1f\"/>", y(tick), y(tick)) +
           format("<text x=\"62\" y=\"%.1f\" text-anchor=\"end\">", y(tick) + 4, 0) + tick_text(tick) + "</text>\n";
  }
  for (const double tick : round_ticks(frame->x0, frame->x1, 9)) {
    svg += format("<line y1=\"30\" y2=\"380\" x1=\"%.1f\" x2=\"%.1f\"/>", x(tick), x(tick)) +
           format("<text y=\"398\" x=\"%.1f\" text-anchor=\"middle\">", x(tick), 0) + tick_text(tick) + "</text>\n";
  }
  svg += "<text x=\"70\" y=\"20\">" + escaped(chart.y_name) + (chart.logarithmic ? ", logarithmic" : "") +
         "</text>\n<text x=\"780\" y=\"418\" text-anchor=\"end\">" + escaped(chart.x_name) + "</text>\n";
  for (std::size_t number = 0; number < chart.lines.size(); ++number) {
    const std::string colour = kSvgColours[number % kSvgColours.size()];
    std::string points;
    for (const auto& [at, value] : chart.lines[number].points) {
      points += frame->shows(value) ? format("%.1f,%.1f ", x(at), y(value)) : "";
    }
    svg += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + colour + "\" points=\"" + points + "\"/>\n";
    const double below = 418 + 20 * static_cast<double>(number);
    svg += format("<line x1=\"70\" x2=\"94\" y1=\"%.0f\" y2=\"%.0f\" ", below - 4, below - 4) + "style=\"stroke:" + colour +
           ";stroke-width:3\"/>" + format("<text x=\"100\" y=\"%.0f\">", below, 0) + escaped(chart.lines[number].name) + "</text>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace atl
