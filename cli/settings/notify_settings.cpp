#include "cli/settings/notify_settings.hpp"

#include <algorithm>

#include "cli/line/command.hpp"
#include "cli/settings/settings_file.hpp"
#include "transport/http/post.hpp"

namespace atl {

Result<coordinator::NotifySettings> read_notify_settings(const std::filesystem::path& path) {
  coordinator::NotifySettings settings;
  coordinator::NoticeSettings& notices = settings.notices;
  const std::vector<CommandOption> keys = {{"--url", "", &settings.url},
                                           {"--secret", "", &settings.secret},
                                           {"--events", "", &notices.events},
                                           {"--interrupted-after", "", &notices.interrupted_after},
                                           {"--island-lost-after", "", &notices.island_lost_after}};
  ATOLL_TRY(take_settings_table(path, "notify", keys));
  const auto wrong = [&](const std::string& why) { return Error{Code::invalid_argument, path.string() + ": [notify] " + why}; };
  if (!settings.url.empty()) {
    if (const Status address = check_post_address(settings.url); !address) {
      return wrong("url: " + address.error().why);
    }
  }
  for (const std::string& event : notices.events) {
    const std::vector<std::string>& names = coordinator::notice_names();
    if (std::ranges::find(names, event) == names.end()) {
      std::string known;
      for (const std::string& name : names) {
        known += (known.empty() ? "" : ", ") + name;
      }
      return wrong("events: '" + event.substr(0, 60) + "' is none of " + known);
    }
  }
  return settings;
}

}  // namespace atl
