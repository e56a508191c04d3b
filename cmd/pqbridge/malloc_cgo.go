//go:build cgo && linux

package main

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// One arena for each thread, as by default, would hold on to several times what is in use. Blocks
// of large values go straight back to the system.
static void tune_malloc(void) {
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}
*/
import "C"

// tuneMalloc bounds what C's allocator keeps that the store has given back.
func tuneMalloc() { C.tune_malloc() }
