// SPDX-License-Identifier: MIT

// bench/peers/gorate: golang.org/x/time/rate in the rounds of `make bench`.
//
// Reads "run REQUEST N" or "rest", a line each, and answers with a line of
// JSON. One thread is timed by its processor time, two by the wall clock; both
// stop when the first has done its share, as in bench/harness.c.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/time/rate"
)

const (
	chunk          = 512
	clockMonotonic = 1
	clockThreadCPU = 3
)

func clockNs(id uintptr) int64 {
	var at syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id,
		uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

func pin(processor uint) {
	mask := uint64(1) << processor
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0,
		unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
}

func allow(limiter *rate.Limiter, n int64) {
	for i := int64(0); i < n; i++ {
		limiter.Allow()
	}
}

func one(limiter *rate.Limiter, n int64) (float64, int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := clockNs(clockThreadCPU)
	allow(limiter, n)
	return float64(clockNs(clockThreadCPU)-start) / float64(n), 0
}

func two(limiter *rate.Limiter, n int64) (float64, int) {
	var stop atomic.Bool
	var arrived atomic.Int32
	var wall, cpu, done atomic.Int64
	var group sync.WaitGroup
	for k := uint(0); k < 2; k++ {
		group.Add(1)
		go func() {
			defer group.Done()
			// Not unlocked: the pinned thread ends with its goroutine.
			runtime.LockOSThread()
			pin(k)
			arrived.Add(1)
			for arrived.Load() < 2 {
				runtime.Gosched()
			}
			w, c := clockNs(clockMonotonic), clockNs(clockThreadCPU)
			var mine int64
			for !stop.Load() {
				allow(limiter, chunk)
				mine += chunk
				if mine >= n {
					stop.Store(true)
				}
			}
			cpu.Add(clockNs(clockThreadCPU) - c)
			wall.Add(clockNs(clockMonotonic) - w)
			done.Add(mine)
		}()
	}
	group.Wait()
	// A contended sync.Mutex parks its loser, so the two do differ by more
	// than a neighbour's noise: no round is called disturbed here.
	return float64(wall.Load()) / float64(done.Load()), 0
}

func main() {
	limiter := rate.NewLimiter(1e9, 1e9)
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var request string
		var n int64
		if input.Text() == "rest" {
			fmt.Println(`{"ns": 0, "disturbed": 0}`)
			continue
		}
		if _, err := fmt.Sscanf(input.Text(), "run %s %d", &request,
			&n); err != nil {
			fmt.Println(`{"error": "unknown request"}`)
			continue
		}
		measure := one
		if request == "allow2" {
			measure = two
		}
		ns, disturbed := measure(limiter, n)
		fmt.Printf("{\"ns\": %.4f, \"disturbed\": %d}\n", ns, disturbed)
	}
}
