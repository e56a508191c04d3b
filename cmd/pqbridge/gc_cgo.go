//go:build cgo

package main

// gcPercent is higher than Go's default because the store's memory is outside Go's heap, which
// leaves the live heap small: a push then costs a ninth less processor time, see docs/measured.md.
const gcPercent = 400

// storeHeap is the store's share of Go's heap, in bytes.
func storeHeap(*config) int64 { return 0 }
