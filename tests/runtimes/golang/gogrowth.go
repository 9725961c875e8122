// A Go service whose heap and goroutines only grow, each in a known way. The first argument is the file for the truth:
// lines of "what number". The second says how often everything grows before the program dies.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

type session struct {
	user string
	data [20]int
	next *session
}

type event struct {
	text  string
	count [6]int
}

type job struct {
	input  []byte
	result *event
}

var (
	sessions = map[string]*session{} // never emptied
	history  []*event
	results  = make(chan int)
	never    = make(chan bool)
	made     int
)

//go:noinline
func open(number int) {
	user := "user" + strconv.Itoa(number)
	sessions[user] = &session{user: user}
}

//go:noinline
func note(number int) {
	history = append(history, &event{text: strconv.Itoa(number)})
}

// The goroutines that nobody reads from.
//
//go:noinline
func compute(number int) {
	results <- number * number
}

//go:noinline
func handle(number int) {
	go compute(number)
	made++
}

// A goroutine whose local variable holds all that it ever got.
//
//go:noinline
func worker(jobs <-chan *job, ready chan<- bool) {
	var kept []*job
	for one := range jobs {
		if one == nil {
			ready <- true
			<-never
			break
		}
		kept = append(kept, one)
	}
	runtime.KeepAlive(kept)
}

func main() {
	began := time.Now()
	times, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	jobs, ready := make(chan *job), make(chan bool)
	go worker(jobs, ready)
	for n := 0; n < times*20000; n++ {
		open(n)
		if n%2 == 0 {
			note(n)
		}
		if n%8 == 0 {
			jobs <- &job{input: make([]byte, 500)}
		}
	}
	for n := 0; n < times*5000; n++ {
		handle(n)
	}
	for n := 0; n < 100; n++ { // all of them wait
		time.Sleep(10 * time.Millisecond)
		runtime.Gosched()
	}
	jobs <- nil
	<-ready
	runtime.GC()
	seen := time.Now() // the collector has seen them wait
	runtime.GC()
	time.Sleep(3 * time.Second)
	for since := time.Now(); time.Since(since) < 200*time.Millisecond; {
		runtime.Gosched()
	}
	truth := fmt.Sprintf("sessions %d\nhistory %d\ncompute %d\nworker %d\nleast %d\nmost %d\n", len(sessions),
		len(history), made, times*20000/8, time.Since(seen)/time.Second, time.Since(began)/time.Second+1)
	if err := os.WriteFile(os.Args[1], []byte(truth), 0o644); err != nil {
		panic(err)
	}
	var action [4]uintptr
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	pid := uintptr(syscall.Getpid())
	tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGABRT))
}
