//go:build cgo && linux

package main

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// One arena for each thread, as by default, would hold on to several times the memory in use.
// Blocks of large values go straight back to the system.
static void tune_malloc(void) {
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}
*/
import "C"

// tuneMalloc bounds the memory that C's allocator keeps after the store has freed it.
func tuneMalloc() { C.tune_malloc() }
