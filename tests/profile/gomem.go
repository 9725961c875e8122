// Allocates, frees, writes the heap profile of its own runtime at once, and dies.
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
)

var held [][]byte

//go:noinline
func small(n int) {
	for i := 0; i < n; i++ {
		held = append(held, make([]byte, 100+i%900))
	}
}

//go:noinline
func large(n int) {
	for i := 0; i < n; i++ {
		held = append(held, make([]byte, 1<<20))
	}
}

//go:noinline
func garbage(n int) {
	for i := 0; i < n; i++ {
		sink = make([]byte, 5000)
	}
}

func inlined(n int) { held = append(held, make([]byte, n)) }

//go:noinline
func descend(n int) {
	inlined(3000)
	if n > 0 {
		descend(n - 1)
	}
}

// The runtime's own functions allocate here: those of maps are in internal/runtime/maps since 1.24.
//
//go:noinline
func mapped(n int) map[int][4]int {
	m := map[int][4]int{}
	for i := 0; i < n; i++ {
		m[i] = [4]int{i}
	}
	return m
}

//go:noinline
func joined(n int) string {
	text := ""
	for i := 0; i < n; i++ {
		text += string(rune('a' + i%26))
	}
	return text
}

var sink []byte
var table map[int][4]int
var text string

func main() {
	runtime.MemProfileRate = 4096
	small(20000)
	large(7)
	garbage(20000)
	descend(40)
	table = mapped(50000)
	text = joined(2000)
	runtime.GC()
	garbage(3000)
	runtime.GC()
	small(500)
	f, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := pprof.WriteHeapProfile(f); err != nil {
		panic(err)
	}
	f.Close()
	syscall.Kill(syscall.Getpid(), syscall.SIGABRT)
	select {}
}
