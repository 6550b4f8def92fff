"""What `sim/run` does inside of a Python program that knows nothing of it. Python loads a module of this name when it
starts; it waits for the program to import torch. `--peaks`, `--report` and `--snapshot` are here, how tensors are
printed, and a quiet end.

Peaks: PyTorch has hooks for all modules and optimisers. Whatever is allocated counts for the innermost layer that runs:
in the forward pass by module, in the backward pass by the module whose output's gradient was asked for last. A table
goes to stderr when the program ends. Costs a call or two of PyTorch's statistics for each layer.

Snapshot: PyTorch records its history of allocations, and writes it to a file when the program ends. For a report each
allocation says in it for which layer it was made.

End: PyTorch's threads are done with the last backward pass before Python ends (`finish_backward_passes`)."""
import atexit
import ctypes
import glob
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time

ROWS = 12  # of each table


def say(text):
    print(text, file=sys.stderr)


def load_next_of_this_name():
    """The environment's own sitecustomize, which this one hides."""
    here = __file__.rsplit("/", 1)[0]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in sys.path if p != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls `then()` once the module of that name is loaded."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), self.then())
        return spec


def raise_to(peaks, stats):
    """Lets each peak be at least what it is in these statistics."""
    for key, value in stats.items():
        if key.endswith(".peak"):
            peaks[key] = max(peaks.get(key, 0), value)


class Layers:
    """What runs, by phase ("forward", "backward", ...) and layer: peaks of each, and a name for what is allocated."""

    def __init__(self, torch, peaks, names_allocations):
        self.torch, self.peaks, self.names_allocations = torch, peaks, names_allocations
        self.rows = {}  # (phase, layer, device) -> [peak, kept]
        self.running = [("outside of layers", "")]
        self.begun = []  # of the modules that run: [memory before, whether another ran inside]
        self.names = {}  # of modules
        self.ever, self.since_reset = {}, {}  # device -> peaks: of all; and since the program reset its own statistics

    def note(self):
        """What was allocated since the last note belongs to what runs now. Gives what each device has."""
        if not self.peaks or not self.torch.cuda.is_initialized():
            return {}
        try:
            return {device: self.note_device(device) for device in range(self.torch.cuda.device_count())}
        except RuntimeError as why:  # the allocator is one without statistics
            say(f"sim/run: there will be no peaks: {str(why).splitlines()[0]}")
            self.peaks = False
            return {}

    def note_device(self, device):
        stats = self.stats(device)
        row = self.rows.setdefault((*self.running[-1], device), [0, 0])
        row[0] = max(row[0], stats.get("allocated_bytes.all.peak", 0))
        for peaks in (self.ever, self.since_reset):
            raise_to(peaks.setdefault(device, {}), stats)
        self.reset(device)
        return stats.get("allocated_bytes.all.current", 0)

    def name_allocations(self):
        """What is allocated from now on is for what runs now. An allocator that keeps no names would warn."""
        if self.names_allocations and getattr(self.torch._C, "_cuda_memoryMetadataSupported", lambda: True)():
            self.torch.cuda.memory._set_memory_metadata(" ".join(self.running[-1]).strip())

    def forward_begins(self, module, inputs):
        if not self.begun:  # a root: the names are those that it gives
            self.names = {part: name for name, part in module.named_modules()}
        else:
            self.begun[-1][1] = True
        self.begun.append([self.note(), False])
        name, kind = self.names.get(module), type(module).__name__
        self.running.append(("forward", f"{name} ({kind})" if name else kind))
        self.name_allocations()

    def forward_ends(self, module, inputs, output):
        now = self.note()
        before, others_inside = self.begun.pop()
        key = self.running.pop()
        self.name_allocations()
        if not others_inside:
            for device, bytes in now.items():
                row = self.rows.setdefault((*key, device), [0, 0])
                row[1] = max(row[1], bytes - before.get(device, 0))
            if isinstance(output, self.torch.Tensor) and output.grad_fn is not None:
                output.grad_fn.register_prehook(lambda gradients: self.enter("backward", key[1]))
        if not self.begun:
            self.enter("after the forward pass", "")

    def enter(self, phase, layer):
        self.note()
        self.running[-1] = (phase, layer)
        self.name_allocations()

    def install(self):
        cuda, modules = self.torch.cuda, self.torch.nn.modules.module
        self.stats, self.reset = cuda.memory.memory_stats, cuda.memory.reset_peak_memory_stats
        modules.register_module_forward_pre_hook(self.forward_begins)
        modules.register_module_forward_hook(self.forward_ends)
        optimizer = sys.modules["torch.optim.optimizer"]
        optimizer.register_optimizer_step_pre_hook(lambda o, a, k: self.enter("optimizer", type(o).__name__))
        optimizer.register_optimizer_step_post_hook(lambda o, a, k: self.enter("outside of layers", ""))
        if self.names_allocations:
            self.torch.cuda._lazy_call(self.name_allocations)
        if self.peaks:
            self.keep_the_programs_view()
            atexit.register(self.print)

    def keep_the_programs_view(self):
        """The notes reset the peaks; the program must not see that."""
        cuda = self.torch.cuda

        def index(device):
            device = device if device is None or isinstance(device, int) else self.torch.device(device).index
            return cuda.current_device() if device is None else device

        def stats(device=None):
            all = self.stats(device)
            if all:  # else CUDA is not in use yet, which to ask for the current device would begin
                peaks = self.since_reset.get(index(device), {})
                raise_to(all, {key: peak for key, peak in peaks.items() if key in all})
            return all

        def reset(device=None):
            self.note()
            self.reset(device)
            self.since_reset.pop(index(device), None)

        # max_memory_allocated, memory_summary and the rest ask these.
        accelerator = sys.modules.get("torch.accelerator")  # the same by another name
        for module in (cuda, cuda.memory, *((accelerator, accelerator.memory) if accelerator else ())):
            module.memory_stats, module.reset_peak_memory_stats = stats, reset

    def print(self):
        self.note()
        if not self.peaks or not self.torch.cuda.is_initialized():
            return
        self.print_table("memory at its highest, and what ran then", 0)
        self.print_table("kept by the forward pass for the backward pass", 1)
        for device, peaks in self.ever.items():
            if device == 0 or peaks.get("reserved_bytes.all.peak", 0) > 0:
                self.print_device(device, peaks)

    def on_device(self, device):
        return f"device {device}" if self.torch.cuda.device_count() > 1 else ""

    def print_device(self, device, peaks):
        mib = 1 << 20
        allocated, reserved = (peaks.get(f"{which}_bytes.all.peak", 0) for which in ("allocated", "reserved"))
        free, total = self.torch.cuda.mem_get_info(device)
        context = total - free - self.stats(device).get("reserved_bytes.all.current", 0)
        name = self.on_device(device)
        say(f"sim/run: {name + ': ' if name else ''}peak {allocated / mib:.1f} MiB allocated, {reserved / mib:.1f} MiB "
            f"reserved; with the context's {context / mib:.0f} MiB it takes {(reserved + context) / mib:.0f} of the "
            f"device's {total / mib:.0f} MiB")

    def print_table(self, title, column):
        rows = sorted(((row[column], *key) for key, row in self.rows.items() if row[column] >= 1 << 10), reverse=True)
        say(f"sim/run: {title} (MiB)")
        for size, phase, layer, device in rows[:ROWS]:
            name = self.on_device(device)
            say(f"{size / (1 << 20):10.1f}  {f'{phase} {layer}'.strip()}{', ' + name if name else ''}")
        if len(rows) > ROWS:
            say(f"            and {len(rows) - ROWS} more")


def write_snapshot(torch, path):
    """Where the allocator is one that has a history."""
    try:
        torch.cuda.memory._dump_snapshot(path)
        return True
    except OSError as why:
        say(f"sim/run: no snapshot was written: {why}")
    except RuntimeError:
        pass
    return False


def record_history(torch, snapshot, report):
    def record():
        try:
            # The page shows no call stacks, which take most of the time.
            torch.cuda.memory._record_memory_history(**({} if snapshot else {"context": None}))
        except RuntimeError as why:
            if snapshot:
                say(f"sim/run: there will be no snapshot: {str(why).splitlines()[0]}")

    def write():
        if not torch.cuda.is_initialized():
            return
        if report:
            write_snapshot(torch, report)
        if snapshot and write_snapshot(torch, snapshot):
            say(f"sim/run: PyTorch's snapshot of its memory is in {snapshot}")

    torch.cuda._lazy_call(record)  # once the program uses the device
    atexit.register(write)


def backward_threads():
    """What those of this process do just now, as Linux says it: "S" is asleep."""
    states = []
    for folder in glob.glob("/proc/self/task/*"):
        try:
            name, state = (open(f"{folder}/{file}").read() for file in ("comm", "stat"))
        except OSError:  # a thread that has just ended
            continue
        if name.startswith("pt_autograd"):
            states.append(state.rpartition(")")[2].split()[0])
    return states


def let_backward_threads_sleep():
    """They may still need Python's lock for a moment, which is theirs while this thread sleeps."""
    for _ in range(100):
        time.sleep(0.005)
        if all(state == "S" for state in backward_threads()):
            break


def finish_backward_passes(torch):
    """A pass returns while a thread of its device still gives up what it used, for which that takes Python's lock; once
    Python ends, nobody gets the lock, and the thread ends the program ("terminate called without an active exception").
    Each thread does one pass after the other, so after a pass of ours the program's are over. Ours leaves nothing to
    give up: all that it uses is kept for good, and used by operations that are kept as well."""
    if not torch.cuda.is_initialized() or not backward_threads():
        return
    try:
        for device in filter(torch._C._cuda_hasPrimaryContext, range(torch.cuda.device_count())):
            with torch.enable_grad():
                leaf = torch.empty(1, device=f"cuda:{device}", requires_grad=True)
                root, gradient = leaf * 1, torch.empty(1, device=f"cuda:{device}")
                kept = (leaf, root, gradient, leaf * gradient, root * gradient)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
            root.backward(gradient)
        let_backward_threads_sleep()
    except RuntimeError:  # CUDA has failed for good, or no memory is left
        pass


def print_from_the_host(torch):
    """Lets a tensor be printed from a copy on the host. Which values decide about its digits is asked of kernels, which
    are skipped: with what they leave, that may be a nonsense number of values."""
    printing = getattr(torch, "_tensor_str", None)
    if not hasattr(printing, "_tensor_str"):  # a PyTorch that has it elsewhere
        return
    print_it = printing._tensor_str
    printing._tensor_str = lambda tensor, indent: print_it(tensor.cpu() if tensor.is_cuda else tensor, indent)


def torch_is_loaded():
    torch = sys.modules["torch"]
    if os.environ.get("WEIR_SIM_KERNELS") != "refuse":
        print_from_the_host(torch)
    atexit.register(finish_backward_passes, torch)  # the last of what is registered here
    peaks, snapshot, report = (os.environ.get("SIM_RUN_" + name) for name in ("PEAKS", "SNAPSHOT", "REPORT"))
    if peaks or report:
        Layers(torch, bool(peaks), bool(report)).install()
    if snapshot or report:
        record_history(torch, snapshot, report)


def numba_is_loaded():
    import weir_sim_numba
    weir_sim_numba.install()


load_next_of_this_name()
sys.meta_path.insert(0, AfterImport("torch", torch_is_loaded))
if os.environ.get("WEIR_SIM_KERNELS") != "refuse":
    sys.meta_path.insert(0, AfterImport("numba.cuda.dispatcher", numba_is_loaded))
