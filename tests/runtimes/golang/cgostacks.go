// Go calls C, which calls Go, which calls C, which dies.
package main

/*
#include <stdlib.h>
extern void goCallback(int);
static void __attribute__((noinline)) inner(int n) { if (n == 0) goCallback(7); else { volatile char x[100]; x[0]=n; inner(n - 1); x[1]=0; } }
static void __attribute__((noinline)) dies(int *p) { *p = 1; }
static void die(void) { dies((int *)8); }
*/
import "C"

import (
	"os"
	"syscall"
	"time"
)

//export goCallback
func goCallback(n C.int) { after(int(n)) }

//go:noinline
func after(n int) {
	if n > 0 {
		after(n - 1)
		return
	}
	C.die()
}

func main() {
	go func() { select {} }()
	time.Sleep(10 * time.Millisecond)
	if trace, err := os.Create(os.Args[1]); err == nil {
		syscall.Dup3(int(trace.Fd()), 2, 0)
	}
	C.inner(3)
}
