// Go's heap with known objects. The program writes one line for each to its first argument: what, type, address, bytes.
// The second gets runtime.MemStats as they are in memory, at the instant before the program dies.
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
	value int
	name  string
}

type record struct { // more than 512 bytes, with pointers: it has a header since Go 1.22
	owner *node
	text  [80]string
}

type page struct { // no pointers
	number int
	data   [4000]byte
}

type huge struct { // a span of its own
	first *node
	data  [70000]byte
	last  *record
}

type shape interface{ area() float64 }

type circle struct {
	radius float64
	label  *string
	more   [3]int
}

type square struct {
	side  float64
	label *string
	next  shape
	more  [5]int
}

func (c *circle) area() float64 { return 3 * c.radius * c.radius }
func (s *square) area() float64 { return s.side * s.side }

type holder struct {
	nodes   *node
	records []*record
	pages   []*page
	huges   [3]*huge
	shapes  []shape
	values  []interface{}
	texts   []string
	table   map[string]*record
	queue   chan *node
	call    func() int
	lines   []node // an array in one block
}

var (
	held *holder
	sink *node
	out  strings.Builder
)

func say(what, kind string, at unsafe.Pointer, size uintptr) {
	fmt.Fprintf(&out, "%s %s %x %d\n", what, kind, uintptr(at), size)
}

//go:noinline
func fill(h *holder) {
	for n := 0; n < 1000; n++ {
		one := &node{h.nodes, n, strings.Repeat("n", 20+n%30)}
		h.nodes = one
		say("live", "main.node", unsafe.Pointer(one), unsafe.Sizeof(*one))
	}
	for n := 0; n < 300; n++ {
		one := &record{owner: h.nodes}
		one.text[3] = "constant"
		h.records = append(h.records, one)
		say("live", "main.record", unsafe.Pointer(one), unsafe.Sizeof(*one))
	}
	for n := 0; n < 50; n++ {
		one := &page{number: n}
		h.pages = append(h.pages, one)
		say("live", "main.page", unsafe.Pointer(one), unsafe.Sizeof(*one))
	}
	for n := range h.huges {
		one := &huge{first: h.nodes}
		h.huges[n] = one
		say("live", "main.huge", unsafe.Pointer(one), unsafe.Sizeof(*one))
	}
	label := strings.Repeat("label", 4)
	for n := 0; n < 200; n++ {
		c := &circle{radius: float64(n), label: &label}
		s := &square{side: float64(n), label: &label, next: c}
		h.shapes = append(h.shapes, s)
		say("live", "main.circle", unsafe.Pointer(c), unsafe.Sizeof(*c))
		say("live", "main.square", unsafe.Pointer(s), unsafe.Sizeof(*s))
	}
	h.values = append(h.values, h.records[0], label, 12345678, [4]int{1, 2, 3, 4}, &held)
	for n := 0; n < 100; n++ {
		h.texts = append(h.texts, strings.Repeat("x", n*7))
	}
	h.table = map[string]*record{}
	for n := 0; n < 100; n++ {
		h.table[fmt.Sprint("key", n)] = h.records[n]
	}
	h.queue = make(chan *node, 100)
	for n := 0; n < 10; n++ {
		h.queue <- h.nodes
	}
	h.lines = make([]node, 40)
	say("live", "[]main.node", unsafe.Pointer(&h.lines[0]), 40*unsafe.Sizeof(h.lines[0]))
	count := 0
	h.call = func() int { count++; return count }
}

//go:noinline
func garbage() {
	for n := 0; n < 500; n++ {
		sink = &node{nil, n, "garbage"}
		say("garbage", "main.node", unsafe.Pointer(sink), unsafe.Sizeof(*sink))
	}
	sink = nil
}

//go:noinline
func deep(n int) int { // clears the stack
	var room [512]byte
	room[n%512] = byte(n)
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%7])
}

//go:noinline
func onHeap() *node {
	return &node{nil, 77, "held by a stack"}
}

//go:noinline
func waits(ready chan<- bool, stop <-chan bool) {
	one := onHeap()
	say("live", "main.node", unsafe.Pointer(one), unsafe.Sizeof(*one))
	ready <- true
	<-stop
	runtime.KeepAlive(one)
}

func main() {
	held = new(holder)
	say("live", "main.holder", unsafe.Pointer(held), unsafe.Sizeof(*held))
	fill(held)
	for n := 0; n < 20000; n++ { // what the collector frees: holes in spans
		s := make([]*node, n%200)
		if n%97 == 0 {
			held.values = append(held.values, s)
		}
	}
	runtime.GC()
	runtime.GC()
	debug.SetGCPercent(-1)
	ready, stop := make(chan bool), make(chan bool)
	go waits(ready, stop)
	<-ready
	go func() {
		garbage()
		ready <- true
	}()
	<-ready
	deep(40)
	if err := os.WriteFile(os.Args[1], []byte(out.String()), 0o644); err != nil {
		panic(err)
	}
	stats := new(runtime.MemStats)
	fd, err := syscall.Open(os.Args[2], syscall.O_CREAT|syscall.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	var action [4]uintptr
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	pid := uintptr(syscall.Getpid())
	runtime.GOMAXPROCS(1) // no thread is made when the world starts again
	runtime.ReadMemStats(stats)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(stats)), unsafe.Sizeof(*stats))
	tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGABRT))
	runtime.KeepAlive(stop)
	runtime.KeepAlive(held)
}
