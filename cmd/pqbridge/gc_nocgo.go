//go:build !cgo

package main

// gcPercent is Go's default: the store's memory is part of Go's heap, which is not small then.
const gcPercent = 100

// storeHeap is the store's share of Go's heap, in bytes.
func storeHeap(c *config) int64 {
	return c.EmbeddedCacheSize + 4*c.EmbeddedMemTableSize
}
