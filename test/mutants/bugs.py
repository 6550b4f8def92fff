"""Known bugs, as text to replace in weir's headers, or in the sources of the simulated runtime. Read by run.py.

They are those of the list that a survey of bugs in memory pools came to (36 kinds, most of them shipped by others), and
some more that are easy to write. `number` is the kind's in that list; 0: a bug of our own.
"""
from dataclasses import dataclass, field

TRACKER = "pool/order/stream_tracker.hpp"
KEY = "pool/order/stream_key.hpp"
TIMELINE = "pool/order/stream_timeline.hpp"
HEAP = "pool/heap/block_heap.hpp"
TABLE = "pool/heap/block_table.hpp"
LISTS = "pool/heap/free_lists.hpp"
INDEX = "pool/heap/tlsf_index.hpp"
ORDERED = "pool/stream_ordered_heap.hpp"
ALLOCATOR = "pool/caching_allocator.hpp"
SEGMENTS = "pool/upstream_segments.hpp"
DIRECTORY = "adaptors/detail/arena_directory.hpp"
LIMIT = "adaptors/limit.hpp"
STATISTICS = "adaptors/statistics.hpp"
SIM_MEMORY = "sim/allocations/virtual_memory.cpp"
SIM_VIEWS = "sim/checker/views.cpp"

THREADS = "thread"  # the sanitizer


@dataclass(frozen=True)
class Bug:
    number: int
    what: str
    edits: list  # (file, the text that is right, the text that is not[, how often it is there])
    test: str  # the program that is expected to catch it, quickest
    sanitizer: str = ""  # that the test needs to see it
    random: bool = True  # the random programs can see it
    arguments: list = field(default_factory=list)  # of the test


def bug(number, what, header, right, wrong, test, **more):
    return Bug(number, what, [(header, right, wrong)], test, **more)


BUGS = [
    # ---- order
    bug(1, "a stream takes another one's block without waiting", TRACKER,
        "!succeeded(cudaStreamWaitEvent(stream.get(), behind->event, 0))", "false", "adaptors/pool_streams"),
    Bug(2, "merged blocks keep the old number of the stream that takes them",
        [(ORDERED, "heap_.merge(found, list, tracker_.on_free(list))", "heap_.merge(found, list, tracker_.issued(list))", 2)],
        "pool/stream_ordered_heap"),
    bug(2, "neighbours of several streams merge and only the last is waited for", ORDERED,
        "joined = joined && join(id);", "joined = id != found.first || join(id);",
        "adaptors/pool_streams"),
    bug(2, "neighbours merge whoever freed them, without waiting", ORDERED,
        "return owner == shared || tracker_.available(list, owner, heap_.sequence(id));", "return static_cast<void>(owner), true;",
        "adaptors/pool_streams"),
    bug(3, "only a stream's first free is recorded", TRACKER,
        ": succeeded(cudaEventRecord(event, handle));", ": true;", "adaptors/pool_streams"),
    bug(4, "an event stands for the free after it too", TIMELINE,
        "e.upto = l.covered = l.issued;", "e.upto = l.covered = next(l.issued);", "pool/order/stream_timeline"),
    bug(5, "the wait is put on the stream that freed", TRACKER,
        "cudaStreamWaitEvent(stream.get(), behind", "cudaStreamWaitEvent(streams_[giver].handle, behind",
        "adaptors/pool_streams"),
    bug(6, "the oldest event is taken, whatever it stands behind", TIMELINE,
        "if (e.upto < t) continue;", "if (e.upto == sequence_number::none) continue;", "pool/order/stream_timeline"),
    bug(6, "an event is waited for that was never recorded", TRACKER,
        "event != nullptr && succeeded(cudaEventRecord(event, handle));", "event != nullptr;", "pool/order/stream_tracker"),
    bug(7, "memory in host order is not waited for", "sources/async.hpp",
        "detail::relaxed([order] { return cudaStreamSynchronize(order); });", "cudaSuccess;", "sources/async"),
    bug(8, "streams are known by their handles", KEY,
        "if (who.code = cudaStreamGetId(handle, &id); who.code != cudaSuccess) return who;",
        "id = reinterpret_cast<std::uintptr_t>(handle);", "pool/order/stream_key"),
    bug(9, "a stream whose identity cannot be had is stream 0", KEY,
        "if (who.code = cudaStreamGetId(handle, &id); who.code != cudaSuccess) return who;",
        "succeeded(cudaStreamGetId(handle, &id));", "pool/order/stream_key"),
    bug(9, "all streams that may end have one number", KEY,
        "who.key = key_for(destroyable, id);", "who.key = key_for(destroyable, 1);", "adaptors/pool_streams"),
    bug(10, "the per-thread default stream is taken for the legacy one", KEY,
        "key = key_for(per_thread, thread_registry::this_number());", "key = legacy_key;", "pool/order/stream_key"),
    bug(10, "all threads' default streams are one", KEY,
        "key = key_for(per_thread, thread_registry::this_number());", "key = key_for(per_thread, 1);",
        "pool/order/stream_key", random=False),
    bug(10, "a free in host order is taken for one of the legacy stream", KEY,
        "if (stream.is_host_order()) return stream_key::none;", "if (stream.is_host_order()) return legacy_key;",
        "pool/order/stream_key"),
    bug(11, "a resource that only knows streams is not waited for", "core/resource.hpp",
        "detail::relaxed([&] { return cudaStreamSynchronize(stream.get()); });", "cudaSuccess;",
        "core/resource", random=False),
    bug(12, "an event is recorded on another device, and that it failed is swallowed", TRACKER,
        "timeline_.not_recorded(list);", "timeline_.recorded(list);", "pool/order/stream_tracker"),
    bug(13, "a query's answer is the wrong way round", TRACKER,
        "calls.enter(), succeeded(cudaEventQuery(event));", "calls.enter(), !succeeded(cudaEventQuery(event));",
        "pool/order/stream_tracker"),
    bug(13, "not ready counts as done", TRACKER,
        "calls.enter(), succeeded(cudaEventQuery(event));", "calls.enter(), succeeded(cudaEventQuery(event)) || true;",
        "pool/order/stream_tracker"),
    bug(14, "an event is recorded anew while an older free still goes by it", TIMELINE,
        "return l.entries[newest(l)].event;", "return l.entries[l.first].event;", "pool/order/stream_timeline"),
    bug(15, "pinned memory is freed while its stream works", "sources/common.hpp",
        "if (!stream.is_host_order() && !wait_for(stream, device_)) return;", "", "conformance/sources"),
    bug(15, "host memory is freed while its stream works", "sources/host.hpp",
        "if (!stream.is_host_order() && (life_.is_exiting() || !detail::wait_for(stream, -1))) return;", "",
        "conformance/sources"),
    bug(16, "a segment goes back though its work is not done", HEAP,
        "return b.is_free() && b.list == shared && is_whole(segment);", "return b.is_free() && is_whole(segment);",
        "adaptors/pool"),
    bug(16, "segments go back at the end without waiting", ALLOCATOR,
        "    release_captured(0);\n    synchronize();", "    release_captured(0);", "adaptors/pool"),
    bug(0, "what was waited for once is known for ever", TIMELINE,
        "if (k.giver == giver) return t <= k.upto;", "if (k.giver == giver) return true;", "pool/order/stream_timeline"),
    bug(0, "a new stream inherits what an ended one has waited for", TIMELINE,
        "for (auto& k : l.knows) k = {};", "", "pool/order/stream_timeline"),
    bug(0, "who takes the place of one that was waited for is taken for waited for as far", TIMELINE,
        "l.knows[l.next_known] = {giver, upto};",
        "known& k = l.knows[l.next_known];\n    k = {giver, k.upto < upto ? upto : k.upto};", "pool/order/stream_timeline",
        random=False),
    bug(0, "recorded counts as done", TIMELINE, "t <= lists_[giver].completed", "t <= lists_[giver].covered",
        "pool/order/stream_timeline"),
    bug(0, "all blocks of a stream are done when one is", LISTS,
        "return id != 0 && this->sequence(id) <= sequence ? id : 0;", "return sequence != sequence_number::none ? id : 0;", "pool/heap/block_heap"),

    # ---- structure
    bug(17, "segments that touch are merged", HEAP, "    free_.put(id, shared, sequence_number::none);\n    return id;",
        "    for (block_id o = 1; o < id; ++o)\n"
        "      if (table_[o].is_free() && table_[o].right == 0 && table_[o].address() + table_[o].bytes() == address)\n"
        "        table_[table_[id].left = o].right = id;\n"
        "    free_.put(id, shared, sequence_number::none);\n    return id;", "pool/heap/block_heap", random=False),
    bug(18, "a block is cut 256 B too short", HEAP,
        "table_.split(id, wanted);", "table_.split(id, wanted - (wanted > 1));", "pool/heap/block_heap"),
    bug(19, "a block can be freed twice", HEAP, "    table_.delist(id);\n", "", "misuse/wrong_frees"),
    bug(20, "what is left of a cut block is lost", HEAP,
        "block_id const taken = table_.split(id, wanted);\n    free_.shrunk(id, has);",
        "free_.pull(id);\n    block_id const taken = table_.split(id, wanted);\n    table_[id].set_live(0, 0);",
        "pool/heap/block_heap"),
    bug(20, "what an aligned block leaves behind it is anyone's", LISTS,
        "blocks_[end].set_free(list);", "blocks_[end].set_free(shared);", "pool/heap/free_lists"),
    bug(21, "a block 256 B too small will do", INDEX,
        "if (has > size && (best", "if (has + 1 >= size && (best", "pool/heap/tlsf_index"),
    bug(22, "a request of a bin's own size goes to the next bin", "adaptors/binning.hpp",
        "while (bytes > bytes_[i]) ++i;", "while (bytes >= bytes_[i]) ++i;", "adaptors/binning", random=False),
    bug(22, "a size class begins one unit late", "pool/heap/size_class.hpp",
        "return {shift + (size >= per_row), size >> shift & (per_row - 1)};",
        "return {shift + (size > per_row), size >> shift & (per_row - 1)};", "pool/heap/size_class"),
    bug(23, "a segment goes back with a live block at its end", HEAP,
        "return b.is_free() && b.list == shared && is_whole(segment);", "return b.is_free() && b.list == shared;",
        "adaptors/pool"),
    bug(24, "another arena's memory is taken for the first one's", DIRECTORY,
        "segments_.insert(address(p), {bytes, arena});", "segments_.insert(address(p), {bytes, 0});",
        "adaptors/arena", random=False),

    # ---- accounts and threads
    Bug(25, "the upstream has a segment back before it is forgotten",
        [(DIRECTORY, "    segments_.erase(address(p));\n    level_.current -= bytes;\n"
          "    give_back(p, bytes, alignment);\n",
          "    level_.current -= bytes;\n    give_back(p, bytes, alignment);\n"
          "    segments_.erase(address(p));\n")], "adaptors/detail/arena_directory", random=False),
    Bug(26, "a free is counted after the upstream has the memory back",
        [(STATISTICS, "    // Counted before the upstream has it back",
          "    upstream_.deallocate(stream, p, bytes, alignment);\n    // Counted before the upstream has it back"),
         (STATISTICS, "    detail::last_call.clear();\n    upstream_.deallocate(stream, p, bytes, alignment);\n", "")],
        "adaptors/statistics", random=False),
    Bug(27, "a budget is looked at first and charged afterwards",
        [(LIMIT, "while (!used_.replace_acquire(held, held + charge));",
          "while (false);\n    sched_yield();\n    used_.add(charge);"),
         (LIMIT, "#include <cstddef>", "#include <sched.h>\n\n#include <cstddef>")], "adaptors/limit", random=False),
    bug(27, "a budget is credited with whatever size the caller names", LIMIT,
        "charge == 0 || used_.load() < charge) [[unlikely]]", "charge == 0) [[unlikely]]",
        "adaptors/limit", random=False),
    bug(0, "a budget charges what is asked for, not what that takes", LIMIT,
        "round_up_or_zero(weir::taken(upstream_, bytes, alignment), granularity_)",
        "round_up_or_zero(bytes, granularity_)", "adaptors/accounts", random=False),
    bug(0, "a statistics counts what is asked for as allocated", STATISTICS,
        "taken = weir::taken(upstream_, bytes, alignment)]", "taken = bytes]", "adaptors/accounts", random=False),
    bug(0, "what a capture keeps is credited when it is freed", LIMIT,
        "if (detail::last_call.what == detail::call_note::captured) captured_.keep(detail::last_call.capture, charge);",
        "if (detail::last_call.what == detail::call_note::captured) credit(charge);",
        "adaptors/accounts", random=False),
    bug(0, "what a capture uses again is charged twice", LIMIT,
        "held -= credit_reused(charge, bytes, alignment);", "held -= 0;", "adaptors/accounts", random=False),
    bug(0, "a pool grows for a capture whose budget is full", ALLOCATOR,
        "if (captured_memory_only::is_set()) {", "if (false) {",
        "adaptors/accounts", random=False),
    bug(0, "a budget is credited with a free that the pool found wrong", LIMIT,
        "if (detail::last_call.what != detail::call_note::plain) [[unlikely]]",
        "if (detail::last_call.what == detail::call_note::captured) [[unlikely]]", "adaptors/accounts", random=False),
    bug(0, "a statistics counts a free that the pool found wrong", STATISTICS,
        "    if (detail::last_call.what == detail::call_note::misuse) [[unlikely]]\n      count(", "    if (false)\n      count(",
        "adaptors/accounts", random=False),
    bug(0, "a budget speaks of a double free before the pool can name the pointer", "adaptors/detail/adaptor_base.hpp",
        "if constexpr (weir::knows_blocks<Upstream>) {", "if constexpr (false) {",
        "adaptors/accounts", random=False),
    bug(0, "null from an upstream is handed on and stays charged", "adaptors/detail/adaptor_base.hpp",
        "if (p == nullptr) [[unlikely]]", "if (false) [[unlikely]]", "adaptors/accounts", random=False),
    bug(0, "null from an upstream stays on an arena's budget", DIRECTORY,
        "return p == nullptr ? attempt.refusal() : growth::done;", "return growth::done;", "adaptors/accounts",
        random=False),
    bug(0, "without caching an arena leaves its line out of errors", "adaptors/arena.hpp",
        "this->pass(stream, bytes, alignment, [] {}) : refuse",
        "share(upstream_).allocate(stream, bytes, alignment) : refuse", "adaptors/detail/pooled", random=False),
    bug(0, "what an upstream's describe throws takes the place of the error", "core/report.hpp",
        "out.below(\"unknown\", std::string(\"describe threw: \") + error.what());", "throw;",
        "adaptors/accounts", random=False),
    bug(0, "a refusal does not name the budget", LIMIT,
        "{bytes, charge, stream}, label_, own", "{bytes, charge, stream}, \"limit\", own",
        "adaptors/accounts", random=False),
    bug(28, "a pool is trimmed without its lock", ALLOCATOR,
        "    auto const lock = enter();\n    if (!lock) return 0;\n    heap_.try_to_keep_ages();",
        "    heap_.try_to_keep_ages();", "adaptors/pool_threads",
        sanitizer=THREADS, random=False),
    bug(28, "numbers are read without the lock", ALLOCATOR,
        "    auto const lock = enter();\n    return lock ? snapshot_now() : pool_snapshot{};", "    return snapshot_now();",
        "adaptors/pool_threads", sanitizer=THREADS, random=False),
    bug(29, "a failure after the upstream gave its memory keeps that", SEGMENTS,
        "      source_.give(lock, p, bytes);\n      throw;", "      throw;", "adaptors/pool", random=False),
    bug(0, "a request is refused while another thread's growth has what it lacks", ALLOCATOR,
        "if (grow_and_take() == growth::contended) segments_.calls().repeat(mutex_, look_again);",
        "static_cast<void>(look_again), grow_and_take();",
        "adaptors/pool_contention", random=False),
    bug(0, "an arena is refused while another one's growth has what it lacks", DIRECTORY,
        "if (!calls_.wait(mutex_)) return growth::refused;", "return growth::refused;", "adaptors/pool_contention",
        random=False),
    bug(0, "a segment that several streams freed is not seen to be idle", SEGMENTS,
        "may_be_idle_ = may_be_idle_ || heap.will_be_idle(freed);",
        "may_be_idle_ = may_be_idle_ || heap.is_idle(freed);", "adaptors/pool_release", random=False),
    bug(0, "what a search learns to be idle is kept", ALLOCATOR,
        "if (is_above_threshold()) keep_at_most(options_.release_threshold);", "", "adaptors/pool_release",
        random=False),
    bug(0, "every search asks about every stream", ORDERED,
        "if (all <= lists_a_search) return all_lists();", "return all_lists();", "adaptors/pool_streams", random=False),
    bug(0, "a request is refused though a stream that was not looked at has its memory", ALLOCATOR,
        "if (!looked_at.are_all()) {", "if (false) {", "adaptors/pool_streams", random=False),
    bug(30, "the thread's last error is left behind", "cuda/error.hpp",
        "static_cast<void>(cudaGetLastError());", "", "cuda/error"),

    # ---- arithmetic and lifetime
    bug(31, "a size that cannot be rounded up is left as it is", "core/bytes.hpp", "return bytes > ~mask ? 0 : (bytes + mask) & ~mask;",
        "return bytes > ~mask ? bytes : (bytes + mask) & ~mask;", "core/bytes", random=False),
    bug(31, "sizes that wrap are not refused", ALLOCATOR, "max_block_bytes - max_alignment;", "~std::size_t{0};",
        "adaptors/pool", random=False),
    bug(32, "alignments are not looked at", "core/error.hpp", "if (is_valid_alignment(alignment)) [[likely]]",
        "if (alignment + 1 != 0)", "core/error", random=False),
    bug(33, "a budget's sum wraps", LIMIT, "if (charge > max_ - held) return 0;",
        "if (held + charge > max_) return 0;", "adaptors/limit", random=False),
    bug(34, "CUDA is called though the process exits", "cuda/process_exit.hpp",
        "__cxxabiv1::__cxa_atexit(reinterpret_cast<void (*)(void*)>(writes), over_, over_);",
        "static_cast<void>(writes);", "shutdown/ends", arguments=["early"], random=False),
    bug(34, "CUDA is called in a forked child", "cuda/process_exit.hpp",
        "if (this_process != nullptr) *this_process = 1;", "", "shutdown/forked", random=False),
    bug(35, "a pool leaves its events behind", TRACKER,
        "if (event != nullptr) succeeded(cudaEventDestroy(event));\n      });\n  }\n  stream_tracker(",
        "static_cast<void>(event);\n      });\n  }\n  stream_tracker(", "adaptors/pool", random=False),
    bug(35, "streams that ended are never forgotten", TRACKER,
        "if (may_end && streams_[list].waiting == 0) timeline_.close(list);",
        "static_cast<void>(may_end);", "adaptors/pool_streams", random=False),
    bug(35, "a stream that was waited for is never forgotten", "pool/stream_ordered_heap.hpp",
        "tracker_.end_wait(list);", "", "adaptors/pool_streams", random=False),
    bug(34, "a forked child is given its parent's streams, and its lock", "cuda/stream.hpp",
        " || known->made_after_ != forks", "", "shutdown/forked", random=False),
    bug(34, "a forked child asks for the time of day before it asks whose log it is", "adaptors/logging.hpp",
        "if (!file_->is_inherited()) ", "", "shutdown/forked", random=False),
    bug(34, "a stream that a forked child moves becomes its own", "cuda/stream.hpp",
        "stream_(std::exchange(other.stream_, {})), life_(other.life_) {}", "stream_(std::exchange(other.stream_, {})) {}",
        "shutdown/forked", random=False),
    bug(0, "the user of a privileged program names the file that it empties", "adaptors/logging.hpp",
        "::secure_getenv(", "std::getenv(", "adaptors/logging", random=False),

    # ---- capture
    bug(36, "the host asks about events while a stream is captured, as if none were", "cuda/capture.hpp",
        "if (!entered_) entered_ = succeeded(cudaThreadExchangeStreamCaptureMode(&mode_));", "", "adaptors/pool_capture"),
    bug(36, "nobody asks whether a stream is captured", KEY,
        "who.code = capture_of(handle, capture);", "", "adaptors/pool_capture"),
    bug(36, "a stream is made to wait without asking whether that breaks a capture", TRACKER,
        " || may_break_capture(stream.get()) ||", " ||", "adaptors/pool_capture"),
    bug(36, "where CUDA does not say whether a stream captures, it is taken for no", "cuda/capture.hpp",
        "  }\n  return true;\n}\n\n/// The same for a stream of `device`",
        "  }\n  return false;\n}\n\n/// The same for a stream of `device`", "sources/device", random=False),
    bug(36, "a capture's memory is released in the first arena only", "adaptors/arena.hpp",
        "for_each([&](one& a) { released += a.pool.release_captured(capture); });",
        "if (one* const a = existing(0); a != nullptr) released += a->pool.release_captured(capture);",
        "adaptors/arena", random=False),

    # ---- devices
    bug(0, "a pool is for the device that is current when it is made, not for its source's", "adaptors/detail/pooled.hpp",
        "device_for(upstream_)", "current_device()", "conformance/devices"),
    bug(0, "an arena is for the device that is current when it is made", "adaptors/arena.hpp",
        "detail::device_for(upstream_)", "current_device()", "conformance/devices"),
    bug(0, "an erased stack does not say for which device it is", "core/any_resource.hpp",
        "int device() noexcept override { return weir::device_of(held); }",
        "int device() noexcept override { return -1; }", "conformance/devices", random=False),
    bug(0, "a fraction is of the memory of the device that is current", LIMIT,
        "int const device = detail::device_for(upstream);", "int const device = current_device();", "conformance/devices",
        random=False),

    # ---- objects that were moved from
    bug(0, "an erased stack that was moved from holds none", "core/any_resource.hpp",
        "basic_any_resource(basic_any_resource&& other) noexcept : held_(std::exchange(other.held_, none())) {}",
        "basic_any_resource(basic_any_resource&& other) noexcept : held_(std::move(other.held_)) {}",
        "core/any_resource", random=False),
    bug(0, "a stream that was moved from is the default stream", "cuda/stream.hpp",
        "if (stream_.handle == nullptr) [[unlikely]]\n      detail::refuse_moved_from(\"stream\");", "",
        "cuda/stream", random=False),

    # ---- whole stacks
    bug(0, "what a trimmed pool gave to its source stays there", "adaptors/detail/pooled.hpp",
        "weir::trim(upstream_, keep);", "", "core/layers", random=False),
    bug(0, "a source is trimmed before CUDA has seen the frees as done", "sources/async.hpp",
        'detail::check(detail::relaxed([&] { return cudaStreamSynchronize(own_stream_.get()); }), "cudaStreamSynchronize");',
        "", "core/layers", random=False),
    bug(0, "an erased stack has no layers for who asks", "core/any_resource.hpp",
        "{ held_->visit_layers(visitor); }", "{ static_cast<void>(visitor); }", "core/layers", random=False),
    bug(0, "a trim ends at a handle", "core/layers.hpp",
        "if (how_far == layer_visitor::extent::all) detail::for_each_layer(", "if (false) detail::for_each_layer(",
        "core/layers", random=False),
    bug(0, "bins trim what is someone else's", "core/any_ref.hpp",
        "if (visitor.how_far() == layer_visitor::extent::all)", "if (true)", "adaptors/detail/bin", random=False),

    # ---- the simulated runtime
    bug(0, "the capacity of mapped memory is given back with its last handle", SIM_MEMORY,
        "if (memory.handles != 0 || memory.views != 0) return;", "if (memory.handles != 0) return;", "sim/virtual_memory",
        random=False),
    bug(0, "the capacity of mapped memory is not given back with its last view", SIM_MEMORY,
        "    --memory->views;\n    drop_if_unused(r, *memory);", "    --memory->views;", "sim/virtual_memory", random=False),
    bug(0, "an unmapping does not look at the work that uses the view", SIM_VIEWS,
        "r.uses.missing_in(known)", "std::optional<mark>()", "sim/check_views", random=False),
    bug(0, "an unmapping does not look at the work on blocks in the view", SIM_VIEWS,
        'check_pending_in(0, begin, end, "unmapped", m, known);', "", "sim/check_views", random=False),
    bug(0, "two views of one memory are taken for two memories", SIM_VIEWS,
        "now.view = r.allocated.operation;", "now.view = 0;", "sim/check_views", random=False),
]
