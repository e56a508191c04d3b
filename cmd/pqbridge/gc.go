package main

import (
	"os"
	"runtime/debug"
)

// tuneGC lets the heap grow to more of its live part between collections, unless
// GOGC says otherwise: the live part is small and the processor is what is
// short.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
