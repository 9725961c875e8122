// Blocks of C that Go's heap holds, and that it no longer does. The program writes one line for each to its first
// argument: whether it is live, and its address.
package main

/*
#include <stdlib.h>
#include <string.h>

static void *volatile passed;
static void *block(int size) { return memset(malloc(size), 'c', size); }
static void scrub(void) { volatile char room[8192]; memset((char *)room, 0, sizeof room); passed = 0; }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"
)

type holder struct {
	next *holder
	p    unsafe.Pointer
	more [4]int
}

var (
	held *holder
	out  strings.Builder
)

//go:noinline
func hold(what string, count int) *holder {
	var last *holder
	for n := 0; n < count; n++ {
		last = &holder{next: last, p: C.block(C.int(100 + n))}
		fmt.Fprintf(&out, "%s %x\n", what, uintptr(last.p))
	}
	return last
}

//go:noinline
func freed() { // what held these is freed, and its memory still has the pointers
	hold("leaked", 64)
}

//go:noinline
func onDeadStack(ready chan<- bool) {
	p := C.block(500)
	fmt.Fprintf(&out, "leaked %x\n", uintptr(p))
	ready <- p != nil
}

//go:noinline
func sleeps(ready chan<- bool, stop <-chan bool) {
	p := C.block(600)
	fmt.Fprintf(&out, "live %x\n", uintptr(p))
	ready <- true
	<-stop
	runtime.KeepAlive(p)
}

//go:noinline
func deep(n int) int {
	var room [512]byte
	room[n%512] = byte(n)
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%7])
}

func main() {
	runtime.LockOSThread()
	held = hold("live", 100)
	ready, stop := make(chan bool), make(chan bool)
	go sleeps(ready, stop)
	<-ready
	go func() { freed(); ready <- true }()
	<-ready
	go onDeadStack(ready)
	<-ready
	deep(50)
	runtime.GC()
	runtime.GC()
	debug.SetGCPercent(-1)
	go func() { ready <- hold("garbage", 50) != nil }() // the collector has not seen it yet
	<-ready
	deep(50)
	C.scrub()
	if err := os.WriteFile(os.Args[1], []byte(out.String()), 0o644); err != nil {
		panic(err)
	}
	var action [4]uintptr
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), tid, uintptr(syscall.SIGABRT))
	runtime.KeepAlive(stop)
}
