// Goroutines that have waited for so many seconds (the third argument) since a collection saw them wait. Others have
// just begun. The program dies by SIGABRT, and what the runtime prints goes to the second argument.
package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func locked(c chan int) {
	runtime.LockOSThread()
	<-c
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[3])
	c, send := make(chan int), make(chan int)
	var lock sync.Mutex
	lock.Lock()
	var pipe [2]int
	syscall.Pipe(pipe[:])
	for n := 0; n < 3; n++ {
		go func() { <-c }()
	}
	go func() { send <- 1 }()
	go func() { lock.Lock() }()
	go func() { select {} }()
	go locked(c)
	go func() {
		var one [1]byte
		syscall.Read(pipe[0], one[:])
	}()
	time.Sleep(300 * time.Millisecond)
	runtime.GC()
	runtime.GC()
	time.Sleep(time.Duration(seconds) * time.Second)
	go func() { <-send }()
	go func() { <-c }()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
	}
	if trace, err := os.Create(os.Args[2]); err == nil {
		syscall.Dup3(int(trace.Fd()), 2, 0)
	}
	syscall.Kill(syscall.Getpid(), syscall.SIGABRT)
	select {}
}
