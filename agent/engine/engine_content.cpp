// What the sync engine does for runs of phases: content by its digest is fetched, adopted, served and dropped.
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"
#include "agent/storage/content_shelf.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {

void SyncEngine::State::carry_out(const OpenContent& order) {
  for (const Content& content : stored_content(settings.runs / order.run.text)) {
    serve_content(order.run, content, 0, 0);
  }
  say(ContentOpened{order.run});
}

// As the run's members were told; its id where it is none of them.
std::string SyncEngine::State::name_of_peer(const RunId& run, const IslandId& island) const {
  const auto audience = audiences.find(run);
  if (audience == audiences.end()) {
    return island.text;
  }
  const auto member = std::ranges::find(audience->second.members, island, &Member::island);
  return member == audience->second.members.end() ? island.text : member->name;
}

// Puts it on the link and says that it is held.
void SyncEngine::State::serve_content(const RunId& run, const Content& content, std::uint64_t start, std::uint64_t step) {
  const DiskPath path = content_path(settings.runs / run.text, content.digest);
  if (const Status put = link->store().put_file(content_blob(run, content.digest), path); !put) {
    say(ContentMissed{run, content.digest, start, put.error()});
    return;
  }
  say(ContentHeld{run, content, start, step, link->store().bytes_served(run), content_received[run]});
}

void SyncEngine::State::carry_out(const FetchContent& order) {
  const DiskPath folder = settings.runs / order.run.text;
  if (content_path(folder, order.content.digest).exists()) {
    serve_content(order.run, Content{order.content.digest, order.content.bytes, {}}, 0, 0);
    return;
  }
  const auto miss = [&](Error error) { say(ContentMissed{order.run, order.content.digest, 0, std::move(error)}); };
  BlobFetchPlan plan;
  plan.blob = content_blob(order.run, order.content.digest);
  plan.size = order.content.bytes;
  plan.digest = order.content.digest;
  for (const IslandId& source : order.content.sources) {
    if (source != settings.self) {
      plan.sources.push_back(source);
      plan.names[source] = name_of_peer(order.run, source);
    }
  }
  const DiskPath path = incoming_path(folder, order.content.digest);
  plan.path = path;
  if (plan.sources.empty()) {
    miss({Code::unavailable, "no other island has it"});
    return;
  }
  Status made = make_folders_durably(folder / "content");
  made = made ? path.folder().make_folders() : made;
  if (!made) {
    miss(made.error());
    return;
  }
  BlobFetch::Settings fetching;
  fetching.wants = wants;
  Result<std::unique_ptr<BlobFetch>> fetch = BlobFetch::begin(std::move(plan), now(), fetching);
  if (!fetch) {
    miss(fetch.error());
    return;
  }
  content_fetches.insert_or_assign(content_blob(order.run, order.content.digest),
                                   ContentFetch{order.run, order.content, *std::move(fetch)});
}

void SyncEngine::State::carry_out(const AdoptContent& order) {
  // The trainer names what it wrote as other processes would.
  const DiskPath written = settings.runs / std::filesystem::path(order.path).lexically_relative(settings.runs.text());
  const Result<Content> content = adopt_content(settings.runs / order.run.text, written);
  if (!content) {
    say(ContentMissed{order.run, Digest{}, order.start, content.error()});
    return;
  }
  serve_content(order.run, *content, order.start, order.step);
}

void SyncEngine::State::carry_out(const DropContent& order) {
  const BlobId blob = content_blob(order.run, order.digest);
  content_fetches.erase(blob);
  link->store().withdraw(blob);
  const DiskPath folder = settings.runs / order.run.text;
  const DiskPath incoming = incoming_path(folder, order.digest);
  for (const DiskPath& left : {content_path(folder, order.digest), incoming, incoming + ".part", incoming + ".have"}) {
    if (const Status removed = left.remove(); !removed) {
      log_warning(removed.error().why);
    }
  }
}

void SyncEngine::State::settle_content() {
  for (auto next = content_fetches.begin(); next != content_fetches.end();) {
    const auto here = next++;
    ContentFetch& work = here->second;
    if (!work.fetch->done() && !work.fetch->failure()) {
      continue;
    }
    const ContentFetch ended = std::move(work);
    content_fetches.erase(here);
    if (ended.fetch->failure()) {
      suspect(ended.fetch->dropped());
      say(ContentMissed{ended.run, ended.content.digest, 0, *ended.fetch->failure()});
      continue;
    }
    const DiskPath folder = settings.runs / ended.run.text;
    content_received[ended.run] += ended.content.bytes;
    if (const Status moved = rename_durably(incoming_path(folder, ended.content.digest), content_path(folder, ended.content.digest));
        !moved) {
      say(ContentMissed{ended.run, ended.content.digest, 0, moved.error()});
      continue;
    }
    serve_content(ended.run, Content{ended.content.digest, ended.content.bytes, {}}, 0, 0);
  }
}

}  // namespace atl::agent
