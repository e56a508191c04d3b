//go:build cgo

package main

// gcPercent is for a process whose store keeps its memory outside of Go's heap.
const gcPercent = 400

// storeHeap is what the store may take of Go's heap, in bytes.
func storeHeap(*config) int64 { return 0 }
