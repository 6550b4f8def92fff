"""What PyTorch offers around memory, streams and events, one step each, on the simulated runtime:

    sim/run --device default --devices 2 python test/clients/torch_steps.py

Prints a line for each step. Steps that are known not to work have their reason here; exit status 1 if any other fails,
or if one of those works."""
import sys

import numpy
import torch

cuda = torch.cuda
steps = []  # (name, function)
state = {}  # what one step leaves for a later one

NOT_WORKING = {
    "share a tensor with a process": "processes cannot share a simulated device's memory (IPC)",
    "share an event with a process": "processes cannot share a simulated device's events (IPC)",
    "utilization": "nobody works a simulated device: NVML answers that it is not supported",
    "memory_usage": "as utilization: the part of the time in which memory was read or written",
}
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
    NOT_WORKING |= dict.fromkeys(("zeros", "zero_"), "before PyTorch 2.15 a kernel writes the zeros, and it is skipped")


def step(name):
    def add(function):
        steps.append((name, function))
        return function
    return add


def check(condition):
    if not condition:
        raise AssertionError("a result is not what it must be")


def add_calls(table):
    """Steps that are one call."""
    for name, function in table.items():
        steps.append((name, function))


add_calls({
    "is_available": lambda: check(cuda.is_available()),
    "device_count": lambda: check(cuda.device_count() == 2),
    "init": cuda.init,
    "device properties": lambda: check(cuda.get_device_properties(0).max_threads_per_multi_processor > 0),
    "device name": cuda.get_device_name,
    "device capability": cuda.get_device_capability,
    "empty": lambda: state.update(x=torch.empty(1 << 20, device="cuda")),
    "data_ptr": lambda: check(state["x"].data_ptr() != 0),
    "memory_allocated": lambda: check(cuda.memory_allocated() == 4 << 20),
    "memory_reserved": lambda: check(cuda.memory_reserved() == 20 << 20),
    "mem_get_info": lambda: check(cuda.mem_get_info()[0] < cuda.mem_get_info()[1]),
    "memory_summary": cuda.memory_summary,
    "snapshot": lambda: check(len(cuda.memory._snapshot()["segments"]) == 1),
})


@step("another stream, record_stream")
def _():
    state["s"] = cuda.Stream()
    with cuda.stream(state["s"]):
        y = torch.empty(1 << 20, device="cuda")
    y.record_stream(cuda.current_stream())


@step("an event: record, query, wait, synchronize")
def _():
    event = cuda.Event()
    event.record(state["s"])
    cuda.current_stream().wait_event(event)
    event.synchronize()
    check(event.query())


@step("the time between two events")
def _():
    first, second = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first.record(state["s"])
    second.record(state["s"])
    second.synchronize()
    check(first.elapsed_time(second) >= 0)


add_calls({
    "synchronize": cuda.synchronize,
    "synchronize a stream": lambda: state["s"].synchronize(),
    "empty_cache": cuda.empty_cache,
    "caching_allocator_alloc": lambda: state.update(p=cuda.caching_allocator_alloc(1 << 20)),
    "caching_allocator_delete": lambda: cuda.caching_allocator_delete(state["p"]),
})

NUMBERS = numpy.arange(1000, dtype=numpy.float32)


@step("copy to the device")
def _():
    state["d"] = torch.from_numpy(NUMBERS).to("cuda")


add_calls({
    "copy back": lambda: check((state["d"].cpu().numpy() == NUMBERS).all()),
    "copy a part back": lambda: check(state["d"][3:9].cpu().tolist() == [3, 4, 5, 6, 7, 8]),
    "clone": lambda: check(state["d"].clone().cpu()[2] == 2),
    "copy_": lambda: check(torch.empty_like(state["d"]).copy_(state["d"]).cpu()[2] == 2),
    "item": lambda: check(state["d"][5].item() == 5),
    "zeros": lambda: check(torch.zeros(10, device="cuda").cpu().sum() == 0),
    "zero_": lambda: check(torch.empty(10, device="cuda").zero_().cpu().sum() == 0),
    "add (skipped)": lambda: state["d"] + 1,
    "print": lambda: check(repr(torch.tensor([1.5, 2, 1e6], device="cuda"))
                           == repr(torch.tensor([1.5, 2, 1e6]))[:-1] + ", device='cuda:0')"),
    "pin_memory": lambda: check(torch.empty(1000).pin_memory().is_pinned()),
    "pinned, non-blocking": lambda: torch.empty(1000).pin_memory().to("cuda", non_blocking=True),
    "allocate pinned": lambda: check(torch.empty(1 << 20, pin_memory=True).is_pinned()),
    "copy to another device": lambda: check((state["d"].to("cuda:1").cpu() == state["d"].cpu()).all()),
    "allocate on another device": lambda: torch.empty(100, device="cuda:1"),
    "can_device_access_peer": lambda: check(cuda.can_device_access_peer(0, 1)),
    "memory_stats": lambda: check(cuda.memory_stats()["allocated_bytes.all.current"] > 0),
    "record_memory_history": lambda: cuda.memory._record_memory_history(),
    "history of an allocation": lambda: (torch.empty(3 << 20, device="cuda"),
                                         check(cuda.memory._snapshot()["device_traces"][0])),
    "dump_snapshot": lambda: cuda.memory._dump_snapshot("/dev/null"),
})


@step("set_per_process_memory_fraction, out of memory")
def _():
    cuda.memory.set_per_process_memory_fraction(0.5)
    try:
        torch.empty(3 << 30, device="cuda")  # 12 of 16 GiB
        check(False)
    except cuda.OutOfMemoryError as error:
        check("8.00 GiB allowed" in str(error))
    finally:
        cuda.memory.set_per_process_memory_fraction(1.0)


@step("out of memory of the device")
def _():
    try:
        torch.empty(1 << 33, device="cuda")
        check(False)
    except cuda.OutOfMemoryError as error:
        check("total capacity of 16.00 GiB" in str(error))


@step("MemPool")
def _():
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        kept = torch.empty(1 << 20, device="cuda")
    check(pool.snapshot()[0]["total_size"] >= kept.nbytes)


@step("a graph: capture and replay")
def _():
    source = torch.ones(1 << 20).cuda()
    target = torch.zeros(1 << 20, device="cuda")
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        target.copy_(source)
    check(target[7].item() == 0)
    graph.replay()
    cuda.synchronize()
    check(target[7].item() == 1)


@step("a graph with memory and a pool of its own")
def _():
    source = torch.ones(1 << 20).cuda()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, pool=cuda.graph_pool_handle()):
        inside = torch.empty(1 << 20, device="cuda")
        inside.copy_(source)
    graph.replay()
    cuda.synchronize()
    check(inside[7].item() == 1)


add_calls({
    "segments of private pools": lambda: check(any(s["segment_pool_id"] != (0, 0)
                                                   for s in cuda.memory._snapshot()["segments"])),
    "utilization": lambda: cuda.utilization(),
    "memory_usage": lambda: cuda.memory_usage(),
    "memory used, by NVML": lambda: check(cuda.device_memory_used() > 0),
    "processes, by NVML": cuda.list_gpu_processes,
    "ipc_collect": cuda.ipc_collect,
    "host_memory_stats": lambda: check(cuda.memory.host_memory_stats()),
    "get_allocator_backend": lambda: check(cuda.memory.get_allocator_backend()),
    "nvtx": lambda: (cuda.nvtx.range_push("a"), cuda.nvtx.range_pop()),
    "profiler": lambda: (cuda.profiler.start(), cuda.profiler.stop()),
    "the runtime itself": lambda: check(cuda.cudart().cudaMemGetInfo(0)[1] > 0),
    "matmul (skipped)": lambda: torch.empty(4, 4, device="cuda") @ torch.empty(4, 4, device="cuda"),
    "convolution (skipped)": lambda: torch.nn.Conv2d(3, 8, 3).cuda()(torch.empty(2, 3, 32, 32, device="cuda")),
    "manual_seed": lambda: torch.manual_seed(3),
    "rand (skipped)": lambda: torch.rand(3, device="cuda"),
    "sort (skipped)": lambda: torch.empty(1000, device="cuda").sort(),
    "reset_peak_memory_stats": lambda: (cuda.reset_peak_memory_stats(), cuda.max_memory_allocated()),
    "reset_peak_host_memory_stats": lambda: cuda.reset_peak_host_memory_stats(),
    "is_bf16_supported": lambda: check(cuda.is_bf16_supported()),
    "ExternalStream": lambda: check(cuda.ExternalStream(state["s"].cuda_stream) is not None),
    "priority_range": lambda: cuda.Stream.priority_range(),
    "dlpack": lambda: check(torch.from_dlpack(state["d"])[5].item() == 5),
    "share a tensor with a process": lambda: torch.empty(10, device="cuda").untyped_storage()._share_cuda_(),
    "share an event with a process": lambda: cuda.Event(interprocess=True).ipc_handle(),
    "_sleep (skipped)": lambda: cuda._sleep(1000),
    "gds": lambda: check(cuda.gds.GdsFile),
    "nccl version": lambda: check(cuda.nccl.version()),
    "cudnn version": lambda: check(torch.backends.cudnn.version() >= 90000),
    "check_error": lambda: cuda.check_error(0),
    "device context": lambda: cuda.device(1).__enter__(),
    "current_device": lambda: check(cuda.current_device() == 1),
})


def main():
    wrong = 0
    for name, function in steps:
        try:
            function()
            said, works = "ok", True
        except Exception as error:  # whatever PyTorch throws
            text = str(error).strip().splitlines()
            said, works = f"{type(error).__name__}: {text[0][:120] if text else ''}", False
        expected = name not in NOT_WORKING
        wrong += works != expected
        note = "" if works == expected else "   <-- UNEXPECTED" if not works else "   <-- works now: take it off the list"
        print(f"{name:45} {said if works or expected else 'not there: ' + NOT_WORKING[name]}{note}")
    print(f"{len(steps) - len(NOT_WORKING)} of {len(steps)} steps are expected to work; {wrong} differ from that")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
