#include "cli/views/rehearsal_view.hpp"

#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/views.hpp"

namespace atl {

using nlohmann::json;

std::string render_rehearsal(const json& document, const Terminal& terminal) {
  const bool enough = flag_at(document, "enough");
  std::size_t members = 0;
  Table table({{"ISLAND", false, true}, {"TAKES PART"}, {"WHY NOT", false, true}});
  for (const json& island : list_at(document, "islands")) {
    const bool takes_part = flag_at(island, "takes_part");
    const std::string obstacle = text_at(island, "obstacle");
    members += takes_part ? 1 : 0;
    table.add({{text_at(island, "name")},
               {takes_part ? "yes" : "no", takes_part ? Style::good : Style::attention},
               {takes_part || !obstacle.empty() ? obstacle : "there are enough"}});
  }
  const std::string reason = printable(text_at(document, "reason"), 500);
  const std::string text = "run " + printable(text_at(document, "name"), 60) +
                           (enough         ? " would begin with "
                            : members == 1 ? " would not begin: there is "
                                           : " would not begin: there are ") +
                           std::to_string(members) + (members == 1 ? " island" : " islands") + " (min " +
                           count_text(number_at(document, "min")) + ", max " + count_text(number_at(document, "max")) + ")" +
                           (reason.empty() ? "" : "; it " + reason) + "\n";
  std::string apart;
  for (const json& two : list_at(document, "apart")) {
    apart += wrapped("warning: " + (two.is_string() ? printable(two.get<std::string>(), 1000) : "") + "\n", 2, terminal);
  }
  std::string all =
      wrapped(text, 2, terminal) + apart + (table.empty() ? "" : "\n" + table.text(terminal)) + pairs_text(document, terminal);
  if (const json& plan = object_at(document, "plan"); !plan.empty()) {
    all += "\n" + render_plan(plan, terminal);
  } else if (const std::string why = printable(text_at(document, "no_plan"), 500); !why.empty()) {
    all += "\n" + wrapped("no plan: " + why + "\n", 2, terminal);
  }
  return all;
}

}  // namespace atl
