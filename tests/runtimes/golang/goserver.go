// A web server as services have them: it keeps sessions in a map, renders templates and JSON, compresses, sleeps, and
// has a worker pool. The first argument is the file that gets its address. A request for /die writes runtime.Stack of all
// goroutines to the second, runtime.MemStats as they are in memory to the third, and the process dies at once.
package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

type session struct {
	User  string            `json:"user"`
	Visit int               `json:"visit"`
	Tags  map[string]string `json:"tags"`
	Parts []part            `json:"parts"`
}

type part struct {
	Name  string  `json:"name"`
	Price float64 `json:"price"`
	More  *part   `json:"more"`
}

type task struct {
	body  []byte
	reply chan int
}

var (
	lock     sync.RWMutex
	sessions = map[string]*session{}
	tasks    = make(chan *task, 16)
	pages    = template.Must(template.New("page").Parse(`<ul>{{range .Parts}}<li>{{.Name}} {{.Price}}</li>{{end}}</ul>`))
	buffers  = sync.Pool{New: func() any { return make([]byte, 4096) }}
)

func work() {
	for one := range tasks {
		sum := 0
		for _, b := range one.body {
			sum += int(b)
		}
		one.reply <- sum
	}
}

func visit(user string) *session {
	lock.Lock()
	defer lock.Unlock()
	one := sessions[user]
	if one == nil {
		one = &session{User: user, Tags: map[string]string{}}
		sessions[user] = one
	}
	one.Visit++
	one.Tags["t"+strconv.Itoa(one.Visit%20)] = strings.Repeat("x", one.Visit%50)
	if len(one.Parts) < 100 {
		one.Parts = append(one.Parts, part{"p" + strconv.Itoa(one.Visit), float64(one.Visit), &part{Name: user}})
	}
	copied := *one
	copied.Tags = nil
	return &copied
}

func serve(w http.ResponseWriter, r *http.Request) {
	one := visit(r.URL.Query().Get("user"))
	switch r.URL.Path {
	case "/json":
		json.NewEncoder(w).Encode(one)
	case "/page":
		pages.Execute(w, one)
	case "/gzip":
		packed := gzip.NewWriter(w)
		json.NewEncoder(packed).Encode(one)
		packed.Close()
	case "/task":
		buffer := buffers.Get().([]byte)
		n, _ := io.ReadFull(r.Body, buffer)
		reply := make(chan int)
		tasks <- &task{buffer[:n], reply}
		fmt.Fprintln(w, <-reply)
		buffers.Put(buffer)
	case "/slow":
		select {
		case <-time.After(200 * time.Millisecond):
		case <-r.Context().Done():
		}
		fmt.Fprintln(w, "slow")
	}
}

func die(http.ResponseWriter, *http.Request) {
	fd, err := syscall.Open(os.Args[3], syscall.O_CREAT|syscall.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	var action [4]uintptr
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	pid := uintptr(syscall.Getpid())
	stats := new(runtime.MemStats)
	text := make([]byte, 8<<20)
	debug.SetGCPercent(-1)
	runtime.GC()
	runtime.GOMAXPROCS(1) // while this goroutine runs, no other does
	text = text[:runtime.Stack(text, true)]
	if err := os.WriteFile(os.Args[2], text, 0o644); err != nil {
		panic(err)
	}
	runtime.ReadMemStats(stats)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(stats)), unsafe.Sizeof(*stats))
	tid, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGABRT))
}

func main() {
	for n := 0; n < 8; n++ {
		go work()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	http.HandleFunc("/", serve)
	http.HandleFunc("/die", die)
	if err := os.WriteFile(os.Args[1]+".new", []byte(listener.Addr().String()), 0o644); err != nil {
		panic(err)
	}
	os.Rename(os.Args[1]+".new", os.Args[1])
	panic(http.Serve(listener, nil))
}
