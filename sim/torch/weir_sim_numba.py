"""Numba's kernels, skipped as other kernels are: Numba compiles them when they are first launched, for which it needs
libraries of NVIDIA's that are not there. Arrays of the host go to the device and come back, as with a launch."""
import atexit
import collections
import os
import sys

import numpy


def is_array(argument, hint):
    return isinstance(argument, (numpy.ndarray, hint)) or hasattr(argument, "__cuda_array_interface__")


def install():
    """In place of a compiled kernel's launch, once `numba.cuda.dispatcher` is loaded."""
    from numba.cuda import args as hints, dispatcher

    skipped = collections.Counter()

    def call(self, arguments, configuration):
        give_back = []
        for argument in arguments:
            if is_array(argument, hints.ArgHint):
                dispatcher.wrap_arg(argument).to_device(give_back, configuration.stream)
        for to_host in give_back:
            to_host()
        skipped[self.py_func.__qualname__] += 1

    def call_for_all(self, *arguments):
        if self.ntasks > 0:
            self.dispatcher[1, self.thread_per_block or 128, self.stream, self.sharedmem](*arguments)

    def say():
        if skipped:
            print(f"sim/run: {skipped.total()} launches of {len(skipped)} of Numba's kernels were skipped", file=sys.stderr)
            if os.environ.get("WEIR_SIM_KERNELS") == "list":
                for name, launches in skipped.most_common():
                    print(f"{launches:10}  {name}", file=sys.stderr)

    dispatcher.CUDADispatcher.call = call
    dispatcher.ForAll.__call__ = call_for_all
    atexit.register(say)
