"""Arrays, copies, streams and events of Numba, which calls the driver and nothing else, on the simulated runtime; and
kernels, which are skipped:

    sim/run --device default python test/clients/numba_steps.py"""
import sys

import numpy
from numba import cuda


def main():
    numbers = numpy.arange(1000, dtype=numpy.float32)
    there = cuda.to_device(numbers)
    assert (there.copy_to_host() == numbers).all()
    assert (there[100:200].copy_to_host() == numbers[100:200]).all()
    free, total = cuda.current_context().get_memory_info()
    assert total == 16 << 30 and free < total

    stream = cuda.stream()
    pinned = cuda.pinned_array(1000, dtype=numpy.float32)
    pinned[:] = numbers + 1
    later = cuda.device_array(1000, dtype=numpy.float32, stream=stream)
    later.copy_to_device(pinned, stream=stream)
    event = cuda.event()
    event.record(stream)
    event.synchronize()
    assert event.query()
    assert (later.copy_to_host() == numbers + 1).all()
    mapped = cuda.mapped_array(100, dtype=numpy.float32)
    mapped[:] = 3

    before = cuda.current_context().get_memory_info()[0]
    arrays = [cuda.device_array(1 << 20, dtype=numpy.uint8) for _ in range(10)]
    assert len(arrays) == 10 and before - cuda.current_context().get_memory_info()[0] == 10 << 20

    @cuda.jit
    def set_all(array, value):
        array[cuda.grid(1)] = value

    set_all[10, 100](there, 7)
    set_all[10, 100](numbers, 7)  # goes to the device and comes back
    set_all.forall(1000)(there, 7)
    cuda.synchronize()
    print("all of Numba's steps are right")


if __name__ == "__main__":
    sys.exit(main())
