//go:build cgo

package main

// gcPercent is for a process whose store keeps its memory outside of Go's heap.
const gcPercent = 400
