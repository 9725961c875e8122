// Goroutines in every state. The program writes runtime.Stack of all of them to its first argument, and dies in the way
// that the second says. What the runtime prints then goes to the third.
package main

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type number interface{ ~int | ~int64 }

type server struct {
	wake chan int
}

//go:noinline
func (s *server) serve() { <-s.wake }

type waiter interface{ wait() }
type embedding struct{ *server }

//go:noinline
func (s server) wait() { <-s.wake }

//go:noinline
func generic[T number](c chan T) T { return inner(c) }

func inner[T number](c chan T) T { return <-c } // inlined

//go:noinline
func descend(n int, c chan int) int {
	if n == 0 {
		return <-c
	}
	return descend(n-1, c) + n
}

//go:noinline
func spin(flag *int32) {
	for n := 0; atomic.LoadInt32(flag) == 0; n++ {
	}
}

//go:noinline
func locked(c chan int) {
	runtime.LockOSThread()
	<-c
}

//go:noinline
func reads(fd int) {
	var one [1]byte
	syscall.Read(fd, one[:])
}

func accepts(l net.Listener) { l.Accept() }

type key [3]int

//go:noinline
func deferring(c chan int) {
	defer func() {
		recover()
		<-c
	}()
	var nothing *key
	nothing[1]++
}

func start(flag *int32) {
	c := make(chan int)
	send := make(chan string)
	s := &server{make(chan int)}
	var lock sync.Mutex
	lock.Lock()
	var group sync.WaitGroup
	group.Add(1)
	for n := 0; n < 5; n++ {
		go func() { <-c }()
	}
	go func() { send <- "x" }()
	go func() {
		select {
		case <-c:
		case send <- "y":
		}
	}()
	go func() { select {} }()
	go func() { lock.Lock() }()
	go group.Wait()
	go time.Sleep(time.Hour)
	go func() { time.Sleep(2 * time.Hour) }()
	go s.serve()
	go embedding{s}.serve()
	var w waiter = embedding{s}
	go w.wait()
	go generic(make(chan int64))
	go descend(30, c)
	go descend(300, c)
	go locked(c)
	go deferring(c)
	var pipe [2]int
	syscall.Pipe(pipe[:])
	go reads(pipe[0])
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		go accepts(l)
	}
	go spin(flag)
	go func() {
		var nilChannel chan int
		<-nilChannel
	}()
	for n := 0; n < 3; n++ { // dead ones, whose g is used again
		done := make(chan int)
		go func() { done <- 1 }()
		<-done
	}
}

//go:noinline
func die(how string) {
	switch how {
	case "raw": // at once: the kernel ends the program, the runtime does nothing more
		var action [4]uintptr
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		pid := uintptr(syscall.Getpid())
		tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
		syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGABRT))
	case "panic":
		var nothing *key
		nothing[2] = 1
	default:
		syscall.Kill(syscall.Getpid(), syscall.SIGABRT)
		select {}
	}
}

// settled returns the stacks when every goroutine waits, but for this one and the one that spins. On a busy machine that
// may take long.
func settled() []byte {
	text := make([]byte, 1<<22)
	for {
		time.Sleep(300 * time.Millisecond)
		found := text[:runtime.Stack(text, true)]
		moving := bytes.Count(found, []byte(" [runnable")) + bytes.Count(found, []byte(" [running"))
		if moving <= 2 && bytes.Count(found, []byte("main.spin(")) == 1 {
			return found
		}
	}
}

func main() {
	debug.SetGCPercent(-1)
	var flag int32
	start(&flag)
	text := settled()
	if err := os.WriteFile(os.Args[1], text, 0o644); err != nil {
		panic(err)
	}
	time.Sleep(20 * time.Millisecond)
	if trace, err := os.Create(os.Args[3]); err == nil {
		syscall.Dup3(int(trace.Fd()), 2, 0)
	}
	die(os.Args[2])
	runtime.KeepAlive(&flag)
}
