// The library after headers that define words of every day as macros: Qt's keywords, and X11's constants and types.
#define slots
#define signals public
#define emit
#define foreach(element, list) for (element : list)
#define forever for (;;)

#define Bool int
#define Status int
#define True 1
#define False 0
#define None 0L
#define Success 0
#define Always 2
#define Above 0
#define Below 1
#define Complex 0
#define Unsorted 0
#define CursorShape 0
#define KeyPress 2
#define FocusIn 9

#include <weir/adaptors.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/bridges/pmr.hpp>
#include <weir/bridges/stl.hpp>
#include <weir/bridges/torch.hpp>
#include <weir/containers.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/testing/checked.hpp>
#include <weir/tools.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/weir.hpp>
