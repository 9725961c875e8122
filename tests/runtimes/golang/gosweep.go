// A Go program that dies while its collector works. The first argument says when: "sweeping" or "marking". The second
// file gets a line for some objects: what, address, bytes. "dead": nothing has it since before the collection. The third
// gets runtime.MemStats as they are in memory, at the instant before the program dies.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"
)

type node struct {
	next  *node
	value [5]int
}

type record struct { // more than 512 bytes, with pointers
	owner *node
	data  [90]int
}

type plain [6]int // no pointers

type huge struct {
	first *node
	data  [70000]byte
}

const (
	many   = 120000
	hidden = 64
	larger = 70 << 20 // than an arena of the heap (heapArenaBytes)
)

var (
	nodes   [2]*node // those of index 1 are dropped
	records [2][]*record
	plains  [2][]*plain
	huges   [2][]*huge
	// The collector takes these for numbers. They look like pointers to dead objects.
	numbers [hidden]uintptr
	sink    []byte
	other   []byte
	out     strings.Builder
)

func say(n, drop int, at unsafe.Pointer, size uintptr) {
	if n%40 == 0 {
		fmt.Fprintf(&out, "%s %x %d\n", [2]string{"live", "dead"}[drop], uintptr(at), size)
	}
}

func fill(done chan<- bool) {
	for n := 0; n < many; n++ {
		drop := n / 3 % 2
		one := &node{next: nodes[drop]}
		nodes[drop] = one
		say(n, drop, unsafe.Pointer(one), unsafe.Sizeof(*one))
		if n%2 == 0 {
			p := new(plain)
			plains[drop] = append(plains[drop], p)
			say(n, drop, unsafe.Pointer(p), unsafe.Sizeof(*p))
		}
		if n%20 == 0 {
			r := &record{owner: one}
			records[drop] = append(records[drop], r)
			say(n, drop, unsafe.Pointer(r), unsafe.Sizeof(*r))
		}
		if n%4000 == 0 {
			h := &huge{first: one}
			huges[drop] = append(huges[drop], h)
			say(n, drop, unsafe.Pointer(h), unsafe.Sizeof(*h))
		}
		if drop == 1 && n%(many/hidden) < 6 {
			numbers[n/(many/hidden)] = uintptr(unsafe.Pointer(one))
		}
	}
	done <- true
}

func forget(done chan<- bool) {
	nodes[1], records[1], plains[1], huges[1] = nil, nil, nil, nil
	done <- true
}

func collections(stats *debug.GCStats) int64 {
	debug.ReadGCStats(stats)
	return stats.NumGC
}

func main() {
	runtime.GOMAXPROCS(1) // the sweeper has no processor of its own
	debug.SetGCPercent(-1)
	done := make(chan bool)
	go fill(done)
	<-done
	go forget(done)
	<-done
	if err := os.WriteFile(os.Args[2], []byte(out.String()), 0o644); err != nil {
		panic(err)
	}
	fd, err := syscall.Open(os.Args[3], syscall.O_CREAT|syscall.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	var action [4]uintptr
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	pid := uintptr(syscall.Getpid())
	stats := new(runtime.MemStats)
	collected := &debug.GCStats{}
	before := collections(collected)
	sink = make([]byte, larger)
	debug.SetGCPercent(10) // less than there is: the next object of its own span begins a collection
	other = make([]byte, 1<<16)
	if os.Args[1] != "marking" { // an object more would let this goroutine help the collector, to the end
		for collections(collected) == before {
		}
	}
	if marks := collections(collected) == before; marks != (os.Args[1] == "marking") {
		syscall.Exec("/proc/self/exe", os.Args, os.Environ()) // too late: on a busy machine
	}
	runtime.ReadMemStats(stats)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(stats)), unsafe.Sizeof(*stats))
	tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGABRT))
}
