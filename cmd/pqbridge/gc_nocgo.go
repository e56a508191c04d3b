//go:build !cgo

package main

// gcPercent is for a process whose store keeps its memory in Go's heap, which is
// not small then.
const gcPercent = 100

// storeHeap is what the store may take of Go's heap, in bytes.
func storeHeap(c *config) int64 {
	return c.EmbeddedCacheSize + 4*c.EmbeddedMemTableSize
}
